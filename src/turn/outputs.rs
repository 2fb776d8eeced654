//! Outputs for tests: calls and thoughts in every format, and every cut of them.

use super::{ToolChoice, TurnStyle, tests::test_style};
use crate::api::{FinishReason, StopReason};

/// A call of `weather` for Ulm in each format, and the name of its parser.
pub(crate) const CALLS: &[(&str, &str)] = &[
    (
        "hermes",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>",
    ),
    ("llama3_json", "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Ulm\"}}"),
    ("mistral", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Ulm\"}"),
    (
        "qwen3_coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "qwen3_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>",
    ),
    ("pythonic", "[weather(city=\"Ulm\")]"),
    (
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \
         \"Ulm\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \
         \"Ulm\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    ("granite", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}]"),
    ("phi4_mini_json", "functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}]"),
    (
        "openai",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Ulm\"}",
    ),
    (
        "glm45",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</tool_call>",
    ),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0\
         <|tool_call_argument_begin|>{\"city\": \"Ulm\"}<|tool_call_end|>\
         <|tool_calls_section_end|>",
    ),
    ("gemma4", "<|tool_call>call:weather{city:<|\"|>Ulm<|\"|>}<tool_call|>"),
    (
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Ulm</parameter>\n\
         </invoke>\n</minimax:tool_call>",
    ),
    ("json", "[{\"name\": \"weather\", \"parameters\": {\"city\": \"Ulm\"}}]"),
    (
        "seed_oss",
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Ulm</parameter>\n</function>\n\
         </seed:tool_call>",
    ),
    ("lfm2", "<|tool_call_start|>[weather(city=\"Ulm\")]<|tool_call_end|>"),
    ("olmo3", "<function_calls>weather(city=\"Ulm\")</function_calls>"),
    (
        "cohere_command3",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \
         \"parameters\": {\"city\": \"Ulm\"}}\n]<|END_ACTION|>",
    ),
    (
        "functiongemma",
        "<start_function_call>call:weather{city:<escape>Ulm<escape>}<end_function_call>",
    ),
    (
        "longcat",
        "<longcat_tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n\
         </longcat_tool_call>",
    ),
    (
        "internlm",
        "<|action_start|><|plugin|>{\"name\": \"weather\", \"parameters\": {\"city\": \
         \"Ulm\"}}<|action_end|>",
    ),
    (
        "jamba",
        "<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\": \
         \"Ulm\"}}]</tool_calls>",
    ),
    ("apertus", "<|tools_prefix|>[{\"weather\": {\"city\": \"Ulm\"}}]<|tools_suffix|>"),
    (
        "gigachat3",
        "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"weather\", \"arguments\": \
         {\"city\": \"Ulm\"}}",
    ),
    (
        "granite-20b-fc",
        "<function_call> {\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}",
    ),
    (
        "deepseek_v32",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" \
         string=\"true\">Ulm</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "deepseek_v4",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" \
         string=\"true\">Ulm</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    (
        "deepseek_v41",
        "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"city\" \
         string=\"true\">Ulm</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
    ),
    (
        "step3",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke \
         name=\"weather\">\n<steptml:parameter name=\"city\">Ulm</steptml:parameter>\n\
         </steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
    ),
    (
        "dots",
        "<dots_function_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Ulm</parameter>\n\
         </invoke>\n</dots_function_call>",
    ),
    (
        "hy_v3",
        "<tool_calls>\n<tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n\
         <arg_value>Ulm</arg_value>\n</tool_call>\n</tool_calls>",
    ),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Ulm\
         ]<]minimax[>[</city>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        "kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"weather\" index=\"1\"<|sep|><|open|>argument \
         key=\"city\" type=\"string\"<|sep|>Ulm<|close|>argument<|sep|><|close|>call<|sep|>\
         <|close|>tools<|sep|>",
    ),
    (
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>\
         <|plamo:begin_tool_name:plamo|>weather<|plamo:end_tool_name:plamo|>\
         <|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"city\": \
         \"Ulm\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>\
         <|plamo:end_tool_requests:plamo|>",
    ),
    (
        "inkling",
        "<|content_invoke_tool_json|>{\"name\": \"weather\", \"args\": {\"city\": \
         \"Ulm\"}}<|end_message|>",
    ),
    (
        "k2_horizon",
        "<ifm|tool_calls>\n<ifm|tool_call>weather\n<ifm|arg_key>city</ifm|arg_key>\n\
         <ifm|arg_value>Ulm</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>",
    ),
    (
        "muse",
        "<|start|>assistant to=weather<|message|><atem:function_calls>\n<atem:invoke \
         name=\"weather\">\n<atem:parameter name=\"city\">Ulm</atem:parameter>\n\
         </atem:invoke>\n</atem:function_calls><|eom|>",
    ),
    (
        "muse_glimmer",
        "<|start|>assistant to=weather<|message|><atem:function_calls>\n<atem:invoke \
         name=\"weather\">\n<atem:parameter name=\"city\">Ulm</atem:parameter>\n\
         </atem:invoke>\n</atem:function_calls><|eom|>",
    ),
    ("minicpm5", "<function name=\"weather\"><param name=\"city\">Ulm</param></function>"),
];

/// A thought `hm` before the answer `yes` in each format, and the name of its parser.
pub(crate) const THOUGHTS: &[(&str, &str)] = &[
    ("deepseek_r1", "<think>hm</think>yes"),
    ("qwen3", "<think>hm</think>yes"),
    ("mistral", "[THINK]hm[/THINK]yes"),
    ("granite", "Here is my thought process:hmHere is my response:yes"),
    (
        "openai_gptoss",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
    ),
    ("glm45", "<think>hm</think>yes"),
    ("gemma4", "<|channel>thought\nhm<channel|>yes"),
    ("deepseek_v3", "<think>hm</think>yes"),
    ("kimi_k2", "<think>hm</think>yes"),
    ("seed_oss", "<seed:think>hm</seed:think>yes"),
    ("ernie45", "<think>hm</think>yes"),
    ("hunyuan_a13b", "<think>hm</think>yes"),
    ("cohere_command3", "<|START_THINKING|>hm<|END_THINKING|>yes"),
    ("deepseek_v4", "<think>hm</think>yes"),
    ("deepseek_v41", "<think>hm</think>yes"),
    ("hy_v3", "<think>hm</think>yes"),
    ("minimax_m3", "<mm:think>hm</mm:think>yes"),
    ("kimi_k3", "<|open|>think<|sep|>hm<|close|>think<|sep|>yes"),
    ("plamo3", "<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>yes"),
    ("inkling", "<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>yes"),
    ("granite_thinking_parser", "<think>hm</think>yes"),
    ("k2_horizon", "<ifm|think>hm</ifm|think>yes"),
    ("muse", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes"),
    ("muse_glimmer", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes"),
    ("minicpmv", "<think>hm</think>yes"),
];

/// An output that ends at a cut, and the style that reads it.
pub(crate) struct CutOutput {
    pub(crate) style: TurnStyle,
    pub(crate) text: String,
    pub(crate) finish: FinishReason,
    /// The names of its parsers.
    pub(crate) label: String,
}

impl CutOutput {
    /// Returns the text in pieces of `length` characters.
    pub(crate) fn pieces(&self, length: usize) -> Vec<String> {
        let chars: Vec<char> = self.text.chars().collect();
        chars.chunks(length).map(|chunk| chunk.iter().collect()).collect()
    }
}

/// Calls `check` with every output of pairs of parsers, cut at every character, with each reason to
/// end. Each parser of calls is alone, with its namesake, and with an eighth of the others. The
/// outputs are two calls, a call within text, a malformed call, required calls and a named call.
pub(crate) fn for_each_cut_output(mut check: impl FnMut(&CutOutput)) {
    let none = ("none", "");
    for (row, (reasoning, thought)) in THOUGHTS.iter().copied().chain([none]).enumerate() {
        let thought = thought.strip_suffix("yes").unwrap_or(thought);
        for (column, (tools, call)) in CALLS.iter().enumerate() {
            let is_chosen = reasoning == "none" || reasoning.starts_with(tools);
            if !is_chosen && !(row + column).is_multiple_of(8) {
                continue;
            }
            let style = test_style(tools, reasoning, ToolChoice::Auto);
            let texts = [
                format!("{thought}{call}{call}"),
                format!("{thought}So: {call}\nWell."),
                format!("{thought}{}", call.replace("Ulm\"", "Ulm\" nope")),
            ];
            let label = format!("{tools} after {reasoning}");
            texts.iter().for_each(|text| cut(&style, text, &label, &mut check));
        }
        let style = test_style("none", reasoning, ToolChoice::Required);
        let calls = r#"[{"name": "now", "parameters": {}}, {"name": "weather", "parameters": {"city": "é"}}]"#;
        let label = format!("required after {reasoning}");
        cut(&style, &format!("{thought}{calls}"), &label, &mut check);
        let style = test_style("none", reasoning, ToolChoice::Named("weather".to_owned()));
        let label = format!("named after {reasoning}");
        cut(&style, &format!("{thought}{{\"city\": \"Ulm\"}}"), &label, &mut check);
    }
}

fn cut(style: &TurnStyle, text: &str, label: &str, check: &mut impl FnMut(&CutOutput)) {
    let stop = StopReason::String("stop".to_owned());
    let endings = [
        FinishReason::Length,
        FinishReason::Abort,
        FinishReason::Stop(Some(stop)),
        FinishReason::Stop(None),
    ];
    let ends = text.char_indices().map(|(end, _)| end).chain([text.len()]);
    // Every ending meets every place, because the texts differ in length by a character.
    for (index, end) in ends.enumerate() {
        let finish = endings[index % endings.len()].clone();
        let (style, text, label) = (style.clone(), text[..end].to_owned(), label.to_owned());
        check(&CutOutput { style, text, finish, label });
    }
}
