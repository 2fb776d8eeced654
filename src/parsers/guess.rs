//! A model's parsers, guessed from its chat template. A template that shows calls or thoughts of
//! earlier turns writes their markers.

/// Markers and the parser that reads them. The first marker that a template holds decides.
const TOOLS: &[(&str, &str)] = &[
    ("<｜DSML｜function_calls>", "deepseek_v32"),
    ("<｜DSML｜tool_calls>", "deepseek_v4"),
    ("<｜DSML｜ calls>", "deepseek_v41"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<|open|>tools<|sep|>", "kimi_k3"),
    ("<|plamo:begin_tool_requests:plamo|>", "plamo3"),
    ("<|content_invoke_tool_json|>", "inkling"),
    ("<steptml:invoke", "step3"),
    ("<dots_function_call>", "dots"),
    ("<tool_sep", "hy_v3"),
    ("<ifm|tool_calls>", "k2_horizon"),
    ("<atem:function_calls>", "muse"),
    ("<seed:tool_call>", "seed_oss"),
    ("<longcat_tool_call>", "longcat"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_list_start|>", "lfm2"),
    ("<|START_ACTION|>", "cohere_command3"),
    ("<start_function_call>", "functiongemma"),
    ("<|tools_prefix|>", "apertus"),
    ("function call<|role_sep|>", "gigachat3"),
    ("<|function_call|>", "gigachat3"),
    ("<|action_start|><|plugin|>", "internlm"),
    ("<function=", "qwen3_coder"),
    ("<function name=", "minicpm5"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<arg_key>", "glm45"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|channel|>", "openai"),
    ("[TOOL_CALLS]", "mistral"),
    ("functools[", "phi4_mini_json"),
    ("<|tool_call|>", "granite"),
    ("<|tool_call>", "gemma4"),
    ("<tool_call>", "hermes"),
    ("<tool_calls>[", "jamba"),
    ("<function_calls>", "olmo3"),
    ("<|python_start|>", "pythonic"),
    ("<|python_tag|>", "llama3_json"),
    ("{\"name\": function name, \"parameters\":", "llama3_json"),
];

/// `qwen3` reads the text between these tags. Thoughts may begin in the prompt or at the beginning
/// of the answer. Without the tags, all text is the answer. That fits a model that does not think
/// and shares its template with one that does.
const REASONING: &[(&str, &str)] = &[
    ("<｜DSML｜tool_calls>", "deepseek_v4"),
    ("<｜DSML｜ calls>", "deepseek_v41"),
    ("<mm:think>", "minimax_m3"),
    ("<|open|>think<|sep|>", "kimi_k3"),
    ("<|plamo:begin_think:plamo|>", "plamo3"),
    ("<|content_thinking|>", "inkling"),
    ("<ifm|think", "k2_horizon"),
    ("to=self<|message|>", "muse"),
    ("<tool_sep", "hy_v3"),
    ("<|channel|>analysis", "openai_gptoss"),
    ("<|channel>", "gemma4"),
    ("<seed:think>", "seed_oss"),
    ("<|START_THINKING|>", "cohere_command3"),
    ("[THINK]", "mistral"),
    ("<arg_key>", "glm45"),
    ("<think>", "qwen3"),
    ("</think>", "qwen3"),
    ("Here is my thought process:", "granite"),
];

const DEEPSEEK_CALL: &str = "<｜tool▁call▁begin｜>";
const DEEPSEEK_V3_FENCE: &str = "```json";

/// Returns the name of the tool parser for models with this chat template, if it shows one.
pub fn guess_tool_parser(template: &str) -> Option<&'static str> {
    if template.contains(DEEPSEEK_CALL) {
        let is_fenced = template.contains(DEEPSEEK_V3_FENCE);
        return Some(if is_fenced { "deepseek_v3" } else { "deepseek_v31" });
    }
    first(TOOLS, template)
}

/// Returns the name of the reasoning parser for models with this chat template, if it shows one.
pub fn guess_reasoning_parser(template: &str) -> Option<&'static str> {
    first(REASONING, template)
}

fn first(parsers: &'static [(&'static str, &'static str)], template: &str) -> Option<&'static str> {
    parsers.iter().find(|(marker, _)| template.contains(marker)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::{super::Registry, *};

    #[test]
    fn templates_show_their_models() {
        // The text of published templates for an assistant's call, and for its thoughts.
        let families = [
            ("{{- '\\n<tool_call>\\n{\"name\": \"' }}", Some("hermes"), None),
            (
                "'<think>\\n' + reasoning_content + '\\n</think>' {{- '<tool_call>\\n' }}",
                Some("hermes"),
                Some("qwen3"),
            ),
            ("<tool_call>\\n<function=' + tool_call.name", Some("qwen3_coder"), None),
            ("'<minimax:tool_call>' '<invoke name=\"' + name", Some("minimax_m2"), None),
            ("<think></think><tool_call>' + name <arg_key>", Some("glm45"), Some("glm45")),
            ("<｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' ```json", Some("deepseek_v3"), None),
            ("<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>'", Some("deepseek_v31"), None),
            ("\"[TOOL_CALLS]\" [THINK]", Some("mistral"), Some("mistral")),
            ("<|start|>assistant<|channel|>analysis", Some("openai"), Some("openai_gptoss")),
            ("<|python_tag|>\" + tool_call.name", Some("llama3_json"), None),
            (
                "'<|tool_call>call:' + name + '{' '<|channel>thought\\n'",
                Some("gemma4"),
                Some("gemma4"),
            ),
            (
                "{{ '<seed:think>' }} '\\n<seed:tool_call>\\n<function=' + name",
                Some("seed_oss"),
                Some("seed_oss"),
            ),
            ("'<|tool_call_start|>[' + calls + ']<|tool_call_end|>'", Some("lfm2"), None),
            (
                "<|START_THINKING|>{{plan}}<|END_THINKING|><|START_ACTION|>[\\n",
                Some("cohere_command3"),
                Some("cohere_command3"),
            ),
            ("'<start_function_call>call:' + name + '{'", Some("functiongemma"), None),
            ("'<longcat_tool_call>\\n' '<longcat_think>'", Some("longcat"), None),
            ("'<|tools_prefix|>[' '<|tools_suffix|>'", Some("apertus"), None),
            ("'<|message_sep|>\\n\\nfunction call<|role_sep|>\\n'", Some("gigachat3"), None),
            ("'<tool_calls>[' + calls + ']</tool_calls>'", Some("jamba"), None),
            ("'<function_calls>' + calls + '</function_calls>'", Some("olmo3"), None),
            (
                "<think> '<｜DSML｜tool_calls>\n' '<｜DSML｜invoke name=\"'",
                Some("deepseek_v4"),
                Some("deepseek_v4"),
            ),
            ("'<｜DSML｜function_calls>\n' '<｜DSML｜invoke name=\"'", Some("deepseek_v32"), None),
            ("'<mm:think>' ']<]minimax[>[' '<tool_call>'", Some("minimax_m3"), Some("minimax_m3")),
            ("<|open|>think<|sep|> <|open|>tools<|sep|>", Some("kimi_k3"), Some("kimi_k3")),
            ("<|content_thinking|> <|content_invoke_tool_json|>", Some("inkling"), Some("inkling")),
            (
                "<think> '<tool_call>' + name + '<tool_sep>\n<arg_key>'",
                Some("hy_v3"),
                Some("hy_v3"),
            ),
            ("'<｜tool_call_begin｜>' '<steptml:invoke name=\"'", Some("step3"), None),
            ("<ifm|think> '<ifm|tool_calls>'", Some("k2_horizon"), Some("k2_horizon")),
            (
                "'<|start|>assistant to=self<|message|>' '<atem:function_calls>\n<atem:invoke'",
                Some("muse"),
                Some("muse"),
            ),
            (
                "<think> '<function name=\"' + tool_call.name + '\">'",
                Some("minicpm5"),
                Some("qwen3"),
            ),
            ("{{ message.content }}", None, None),
        ];
        let registry = Registry::default();
        for (template, tools, reasoning) in families {
            assert_eq!(guess_tool_parser(template), tools, "{template}");
            assert_eq!(guess_reasoning_parser(template), reasoning, "{template}");
        }
        for (_, name) in TOOLS {
            assert!(registry.tool_parser(name).is_ok(), "{name}");
        }
        for (_, name) in REASONING {
            assert!(registry.reasoning_parser(name).is_ok(), "{name}");
        }
    }
}
