//! Calls that are cut off or malformed keep the parts that arrived.

use super::{Whole, check_no_calls, check_tools, message_of, tool_events};

/// Outputs by parser. The calls include incomplete ones.
const INCOMPLETE: &[(&str, &[Whole<'_>])] = &[
    ("granite", &[("<|tool_call|> [{\"name\": \"func\", \"arguments\": {", "", &[("func", "{")])]),
    (
        "hermes",
        &[
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1,}}</tool_call><tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
                "}}</tool_call>",
                &[("a", "{\"x\": 1,"), ("b", "{}")],
            ),
            (
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru",
                "",
                &[("f", "{\"a\": tru")],
            ),
            (
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": true}",
                "",
                &[("f", "{\"a\": true}")],
            ),
            (
                "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"arguments\": {}}</tool_call>",
                "{}}</tool_call>",
                &[("f", "{}")],
            ),
        ],
    ),
    ("json", &[("[{\"name\": \"a\", \"parameters\": {\"x\"", "", &[("a", "{\"x\"")])]),
    (
        "llama3_json",
        &[(
            "{\"name\": \"invalidTool\", \"parameters\": {invalid json}",
            "invalid json}",
            &[("invalidTool", "{")],
        )],
    ),
    (
        "mistral",
        &[
            ("[TOOL_CALLS]f{a}", "a}", &[("f", "{")]),
            ("[TOOL_CALLS]bash{\"command\": \"cut o", "", &[("bash", "{\"command\": \"cut o")]),
        ],
    ),
    (
        "phi4_mini_json",
        &[("functools[{\"name\": \"func\", \"arguments\": {", "", &[("func", "{")])],
    ),
    (
        "deepseek_v3",
        &[(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1\n```<｜tool▁call▁end｜>",
            "```<｜tool▁call▁end｜>",
            &[("f", "{\"a\": 1\n")],
        )],
    ),
    (
        "kimi_k2",
        &[(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.bad:0<|tool_call_argument_begin|>{\"x\": \"y\"<|tool_call_end|><|tool_call_begin|>b_c.d:1<|tool_call_argument_begin|>{\n}<|tool_call_end|><|tool_calls_section_end|>",
            "<|tool_call_end|>",
            &[("bad", "{\"x\": \"y\""), ("b_c.d", "{\n}")],
        )],
    ),
    (
        "glm45",
        &[
            (
                "<tool_call>weather<arg_key>city</arg_key>x<tool_call>now</tool_call>",
                "x",
                &[("weather", "{"), ("now", "{}")],
            ),
            (
                "<tool_call>weather<arg_key>days</arg_key><arg_value>3</arg_value>\n<tool_call>now</tool_call>",
                "",
                &[("weather", "{\"days\": 3"), ("now", "{}")],
            ),
            (
                "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bei",
                "",
                &[("weather", "{\"city\": \"Bei")],
            ),
            (
                "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Beijing</arg_value>",
                "",
                &[("weather", "{\"city\": \"Beijing\"")],
            ),
        ],
    ),
    (
        "gemma4",
        &[
            ("<|tool_call>call:f{a:<|\"|>x", "", &[("f", "{\"a\": \"x")]),
            ("<|tool_call>call:f{a:1,b}<tool_call|>", "}<tool_call|>", &[("f", "{\"a\": 1, ")]),
        ],
    ),
    (
        "pythonic",
        &[
            ("[f(x=1), g(y=b'z')]", "'z')]", &[("f", "{\"x\": 1}"), ("g", "{\"y\": ")]),
            ("[f(x=y)]", ")]", &[("f", "{\"x\": ")]),
            ("[f(x=1e999)]", ")]", &[("f", "{\"x\": ")]),
            ("[f(x=[1, 'a", "", &[("f", "{\"x\": [1, \"a")]),
        ],
    ),
    (
        "muse",
        &[
            (
                " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Dal",
                "",
                &[("weather", "{\"city\": \"Dal")],
            ),
            // The end of the message ends the call.
            (
                "to=f<|message|><atem:invoke name=\"f\"><atem:parameter name=\"a\">[1]</atem:parameter><|eom|><|start|>assistant to=now<|message|><atem:invoke name=\"now\">\n</atem:invoke><|eom|>",
                "",
                &[("f", "{\"a\": [1]"), ("now", "{}")],
            ),
        ],
    ),
    (
        "minimax_m2",
        &[(
            "<minimax:tool_call><invoke name=\"weather\">\n<parameter name=\"city\">Dal",
            "",
            &[("weather", "{\"city\": \"Dal")],
        )],
    ),
    (
        "qwen3_coder",
        &[
            (
                "<tool_call><function=weather><parameter=city>Ulm</parameter><tool_call><function=now></function></tool_call>",
                "",
                &[("weather", "{\"city\": \"Ulm\""), ("now", "{}")],
            ),
            (
                "<tool_call><function=weather>\n<parameter=city>\nDal",
                "",
                &[("weather", "{\"city\": \"Dal")],
            ),
        ],
    ),
];

#[test]
fn an_incomplete_call_keeps_its_parts() {
    for (parser, table) in INCOMPLETE {
        check_tools(parser, table);
        for (text, ..) in *table {
            let message = message_of(tool_events(parser, &[text]));
            assert!(message.calls.iter().any(|call| !call.is_complete), "{parser}: {text}");
        }
    }
}

/// As in vLLM, only the end of a block shows whether it is a call.
#[test]
fn a_block_of_minicpm5_without_an_end_or_with_other_parameters_is_content() {
    check_no_calls(
        "minicpm5",
        &[
            "see <function name=\"x\"> for it. More text follows.",
            "<function name=\"now\"><param name=\"a\">1</par",
            "<function of=\"x\">1</function> <function names=\"x\"></function>",
            // A name is repeated, or is missing.
            "<function name=\"f\"><param name=\"a\">1</param><param name=\"a\">1</param></function>ok",
            "<function name=\"f\"><param>1</param></function>",
            "<function name=\"weather\"><param name=\"properties\">city</param></function>",
        ],
    );
    let refused = "<function name=\"f\"><param>1</param></function>";
    let text = format!("{refused}\n<function name=\"now\"></function>");
    check_tools("minicpm5", &[(&text, &format!("{refused}\n"), &[("now", "{}")])]);
}

#[test]
fn a_number_of_minicpm5_stays_exact() {
    let number = "12345678901234567890123";
    let text = format!(
        "<function  name=\"weather\"><param name=\"arguments\">{{\"days\": {number}}}</param></function>"
    );
    let arguments = format!("{{\"days\": {number}}}");
    check_tools("minicpm5", &[(&text, "", &[("weather", &arguments)])]);
}
