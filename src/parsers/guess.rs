//! A model's parsers, guessed from its chat template. A template that shows calls or thoughts of
//! earlier turns writes their markers.

/// Markers and the parser that reads them. The first marker that a template holds decides.
const TOOLS: &[(&str, &str)] = &[
    ("<function=", "qwen3_coder"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<arg_key>", "glm45"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|channel|>", "openai"),
    ("[TOOL_CALLS]", "mistral"),
    ("functools[", "phi4_mini_json"),
    ("<|tool_call|>", "granite"),
    ("<|tool_call>", "gemma4"),
    ("<tool_call>", "hermes"),
    ("<|python_start|>", "pythonic"),
    ("<|python_tag|>", "llama3_json"),
    ("{\"name\": function name, \"parameters\":", "llama3_json"),
];

/// `qwen3` reads the text between these tags. Thoughts may begin in the prompt or at the beginning
/// of the answer. Without the tags, all text is the answer. That fits a model that does not think
/// and shares its template with one that does.
const REASONING: &[(&str, &str)] = &[
    ("<|channel|>analysis", "openai_gptoss"),
    ("<|channel>", "gemma4"),
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
