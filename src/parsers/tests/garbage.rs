//! For any input, a parser does not panic and does not lose text, and the cuts do not matter.

use proptest::{prelude::*, sample::Index};

use super::{
    ReasoningStart, Registry, is_json, message_of, parts, pieces, reasoning_events, tool_events,
    unwraps_messages,
};

/// Returns random texts of the pieces that formats consist of.
fn garbage() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜ calls>",
        "<｜DSML｜invoke name=\"f\">",
        "<｜DSML｜parameter name=\"a\" string=\"false\">",
        "</｜DSML｜parameter>",
        "</｜DSML｜invoke>",
        "<｜tool_calls_begin｜>",
        "<｜tool_call_begin｜>",
        "function",
        "<｜tool_sep｜>",
        "<steptml:invoke name=\"weather\">",
        "<steptml:parameter name=\"days\">",
        "</steptml:parameter>",
        "</steptml:invoke>",
        "<｜tool_calls_end｜>",
        "<dots_function_call>",
        "</dots_function_call>",
        "<tool_calls:6124>",
        "<tool_call:6124>",
        "<tool_sep:6124>",
        "<tool_sep>",
        "</tool_call:6124>",
        "</tool_calls:6124>",
        "]<]minimax[>[",
        "<a>",
        "</a>",
        "<invoke name=f>",
        "<ifm|tool_calls>",
        "<ifm|tool_call>f",
        "<ifm|arg_key>a</ifm|arg_key>",
        "<ifm|arg_type>integer</ifm|arg_type>",
        "<ifm|arg_value>1</ifm|arg_value>",
        "</ifm|tool_call>",
        "</ifm|tool_calls>",
        "<|open|>",
        "<|close|>",
        "<|sep|>",
        "tools",
        "think",
        "call tool=\"f\"",
        "argument key=\"a\" type=\"number\"",
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:begin_tool_request:plamo|>",
        "<|plamo:end_tool_requests:plamo|>",
        "<|content_invoke_tool_json|>",
        "<|content_text|>",
        "<|content_thinking|>",
        "<|message_model|>",
        "<|end_message|>",
        "<mm:think>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "<function_calls>",
        "</function_calls>",
        "<|START_ACTION|>[",
        "]<|END_ACTION|>",
        "{\"tool_name\": \"f\", ",
        "<start_function_call>",
        "<escape>",
        "<end_function_call>",
        "<longcat_tool_call>",
        "</longcat_tool_call>",
        "<|action_start|><|plugin|>",
        "<|action_end|>",
        "<tool_calls>",
        "</tool_calls>",
        "<|tools_prefix|>[",
        "{\"f\": ",
        "<|tools_suffix|>",
        "<|message_sep|>\n\n",
        "function call<|role_sep|>\n",
        "<|function_call|>",
        "<function_call>",
        "<response>",
        "</response>",
        "<tool_call>",
        "</tool_call>",
        "<|tool_call|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "functools[",
        "<|python_tag|>",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "<invoke name=\"weather\">",
        "</invoke>",
        "<parameter name='days'>",
        "<function=",
        "<function=weather>",
        "</function>",
        "<parameter=city>",
        "<parameter=days>",
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "\n```json\n",
        "\n```",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "functions.f:0",
        "<|tool_call>",
        "call:f{",
        "a:<|\"|>x",
        "<|\"|>",
        "<tool_call|>",
        "<|channel>",
        "thought\n",
        "<channel|>",
        "<|start|>",
        "assistant",
        "<|channel|>",
        "analysis",
        "commentary to=functions.f",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        " to=self",
        "to=f",
        "<|eom|>",
        "<|eot|>",
        "<atem:function_calls>",
        "<atem:invoke name=\"now.now\">",
        "<atem:parameter name=\"city\">",
        "</atem:parameter>",
        "</atem:invoke>",
        "</atem:function_calls>",
        "<function name=\"weather\">",
        "<param name=\"days\">",
        "<![CDATA[",
        "]]>",
        "</param>",
        "&lt;",
        "<|im_end|>",
        "\\n",
        "`",
        "$",
        "<think>",
        "</think>",
        "[THINK]",
        "[/THINK]",
        "Here is my thought process:",
        "Here is my response:",
        "{\"name\": \"f\", ",
        "\"arguments\": ",
        "\"parameters\": {",
        "{\"a\": 1}",
        "{\"city\": \"x\\\"}",
        "\"}",
        "}",
        "]",
        "[",
        "{",
        "(",
        ")",
        ",",
        ": ",
        "=",
        "f(a=1",
        "['b', None]",
        "'",
        "\"",
        "\\",
        "\n",
        " ",
        ";",
        "true",
        "null",
        "-1.5e3",
        "é",
        "😀",
        "name",
        "\u{1}",
        "now",
        "3",
    ]);
    prop::collection::vec(words, 0..24).prop_map(|words| words.concat())
}

/// Two calls in each format.
const OUTPUTS: &[&str] = &[
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1\
     </｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n\
     </｜DSML｜function_calls>",
    "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"weather\">\n\
     <steptml:parameter name=\"days\">3</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n\
     <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"now\">\n</steptml:invoke>\
     <｜tool_call_end｜>\n<｜tool_calls_end｜>",
    "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n\
     <invoke name=\"g\">\n</invoke>\n</dots_function_call>",
    "<tool_calls:6124>\n<tool_call:6124>weather<tool_sep:6124>\n<arg_key:6124>days</arg_key:6124>\n\
     <arg_value:6124>3</arg_value:6124>\n</tool_call:6124>\n<tool_call:6124>now<tool_sep:6124>\n\
     </tool_call:6124>\n</tool_calls:6124>",
    "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>1]<]minimax[>[</a>\
     ]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"g\">]<]minimax[>[<b>]<]minimax[>[<a>é\
     ]<]minimax[>[</a>]<]minimax[>[</b>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    "so<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>\
     <|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1\
     <|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"g\" index=\"2\"<|sep|>\
     <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>\
     <|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|>\
     <|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"a\": 1}\
     <|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>\
     <|plamo:end_tool_requests:plamo|>",
    "<|content_thinking|>so<|end_message|><|message_model|><|content_text|>I look.<|end_message|>\
     <|message_model|><|content_invoke_tool_json|>{\"name\": \"f\", \"args\": {\"a\": 1}}<|end_message|>",
    " to=self<|message|>so<|eom|><|start|>assistant to=weather<|message|><atem:function_calls>\n\
     <atem:invoke name=\"weather\">\n<atem:parameter name=\"days\">3</atem:parameter>\n\
     </atem:invoke>\n<atem:invoke name=\"now\">\n</atem:invoke>\n</atem:function_calls><|eom|>\
     <|start|>assistant to=user<|message|>ok<|eot|>",
    "<function name=\"weather\"><param name=\"city\">1 &lt; 2</param><param name=\"days\">3</param>\
     </function>\n<function name=\"f\"><param name=\"a\"><![CDATA[<b>]]></param></function>",
    "so\\nit</think>It `a\\n` is\\r\\n$\\nu$.<|im_end|>",
    "<seed:tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</function>\n\
     <function=now>\n</function>\n</seed:tool_call>",
    "<|tool_call_start|>[f(a='it\\'s', b=[1]), g()]<|tool_call_end|>",
    "<function_calls>\nf(a='b', c=null)\ng(x={'d': 1})\n</function_calls>",
    "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}, \
     {\"tool_name\": \"g\", \"parameters\": {}}]<|END_ACTION|>",
    "<start_function_call>call:f{a:<escape>b<escape>,c:1}<end_function_call>\
     <start_function_call>call:g{}<end_function_call>",
    "<longcat_tool_call>{\"name\": \"f\", \"arguments\": {}}</longcat_tool_call>\n\
     <longcat_tool_call>{\"name\": \"g\", \"arguments\": {\"a\": 1}}</longcat_tool_call>",
    "<|action_start|><|plugin|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}<|action_end|>",
    "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]\
     </tool_calls>",
    "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "<function_call> {\"name\": \"f\", \"arguments\": {}}\n<function_call> {\"name\": \"g\", \
     \"arguments\": {\"a\": 1}}",
    "so</think>\n<response>\nIt is.\n</response>\n",
    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n\
     <invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>\n<tool_call>\n\
     {\"arguments\": \"{}\", \"name\": \"g\"}\n</tool_call>",
    "{\"name\": \"f\", \"parameters\": {\"a\": null}}; {\"name\": \"g\", \"parameters\": {\"b\": -1e5}}",
    "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"a\": \"é\"}}]",
    "[TOOL_CALLS]f{\"a\": \"\\u00e9\"}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{\"b\": {}}",
    "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {\"a\": 1}, \"name\": \"g\"}]",
    "functools[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"a\": true}}]",
    "[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": {\"a\": 1}}]",
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n3\n\
     </parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>北京</arg_value>\n<arg_key>at</arg_key>\n\
     <arg_value>{'x': 1}</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
    "[f(a='it\\'s', b=[1, (2.5,)], c={'d': None}), g(), h(x = True, y=-1_0)]",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```\
     <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>\
     <｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>\
     <｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}\
     <|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>\
     <|tool_calls_section_end|>",
    "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary to=functions.f \
     <|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant<|channel|>final<|message|>ok<|return|>",
];

/// Returns outputs with pieces removed and garbage inserted.
fn damaged() -> impl Strategy<Value = String> {
    let damage = (any::<Index>(), 0_usize..6, garbage());
    (prop::sample::select(OUTPUTS), prop::collection::vec(damage, 0..3)).prop_map(
        |(output, damages)| {
            let mut text: Vec<char> = output.chars().collect();
            for (place, length, garbage) in damages {
                let place = place.index(text.len() + 1);
                let end = (place + length).min(text.len());
                let words = garbage.chars().take(2 * length);
                text.splice(place..end, words);
            }
            text.into_iter().collect()
        },
    )
}

/// Cuts `text` at these places.
fn cut<'a>(text: &'a str, places: &[Index]) -> Vec<&'a str> {
    let boundaries = super::boundaries(text);
    let mut cuts: Vec<usize> = places
        .iter()
        .filter(|_| !boundaries.is_empty())
        .map(|place| boundaries[place.index(boundaries.len())])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    pieces(text, &cuts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tool_parsers_take_anything(
        text in prop_oneof![3 => damaged(), 2 => garbage(), 1 => any::<String>()],
        places in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        for name in Registry::default().tool_parser_names() {
            let events = tool_events(name, &[&text]);
            prop_assert_eq!(tool_events(name, &cut(&text, &places)), events.clone(), "{}", name);
            if name == "openai" {
                continue;
            }
            let message = message_of(events);
            for call in message.calls.iter().filter(|call| call.is_complete) {
                prop_assert!(is_json(&call.arguments), "{}: {}", name, call.arguments);
            }
            if message.calls.is_empty() && !unwraps_messages(name) {
                let blank = |text: &str| text.split_whitespace().collect::<String>();
                prop_assert_eq!(blank(&message.content), blank(&text), "{}", name);
            }
        }
    }

    #[test]
    fn reasoning_parsers_take_anything(
        text in prop_oneof![3 => damaged(), 2 => garbage(), 1 => any::<String>()],
        places in prop::collection::vec(any::<Index>(), 0..6),
        thinking in any::<Option<bool>>(),
    ) {
        let start = ReasoningStart { thinking, ..ReasoningStart::default() };
        for name in Registry::default().reasoning_parser_names() {
            let events = reasoning_events(name, &start, &[&text]);
            let cut = reasoning_events(name, &start, &cut(&text, &places));
            prop_assert_eq!(&cut, &events, "{}", name);
            let (reasoning, content) = parts(&events);
            prop_assert!(reasoning.len() + content.len() <= text.len() + 64, "{}", name);
        }
    }
}
