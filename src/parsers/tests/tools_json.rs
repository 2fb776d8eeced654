//! Formats whose calls are JSON objects.

use super::{
    super::{CallIdFormat, ToolEvent},
    check_no_calls, check_tools, message_of, tool_events, tool_parser,
};

#[test]
fn hermes() {
    check_tools(
        "hermes",
        &[
            ("Hello.", "Hello.", &[]),
            ("\n Hello <b>.\n", "\n Hello <b>.\n", &[]),
            (
                "<tool_call>\n{\"name\": \"final_answer\", \"arguments\": {\"trigger\": true}}\n\
                 </tool_call>",
                "",
                &[("final_answer", "{\"trigger\": true}")],
            ),
            (
                "I look.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Köln 😀\"}}\
                 </tool_call>\nDone.",
                "I look.\n\nDone.",
                &[("weather", "{\"city\":\"Köln 😀\"}")],
            ),
            (
                "\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n\
                 <tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>\n",
                "",
                &[("a", "{}"), ("b", "{}")],
            ),
            // Nesting, braces and quotes within strings, arguments first, other keys.
            (
                r#"<tool_call>{"id": 7, "arguments": {"a": {"b": [1, {"c": "}\"{</x>"}]}}, "name": "f\u00e9"}</tool_call>"#,
                "",
                &[("fé", r#"{"a": {"b": [1, {"c": "}\"{</x>"}]}}"#)],
            ),
            // No closing tag; two calls within one pair of tags.
            ("<tool_call>{\"name\": \"now\", \"arguments\": {}}", "", &[("now", "{}")]),
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": {}}\n\
                 {\"name\": \"b\", \"arguments\": {}}</tool_call>",
                "",
                &[("a", "{}"), ("b", "{}")],
            ),
            // Arguments that are missing, null, or written into a string, and a string that holds
            // no JSON.
            ("<tool_call>{\"name\": \"now\"}</tool_call>", "", &[("now", "{}")]),
            (
                "<tool_call>{\"arguments\": null, \"name\": \"now\"}</tool_call>",
                "",
                &[("now", "{}")],
            ),
            (
                r#"<tool_call>{"name": "f", "arguments": "{\"p\": \"max\"}"}</tool_call>"#,
                "",
                &[("f", r#"{"p": "max"}"#)],
            ),
            (
                r#"<tool_call>{"name": "f", "arguments": "hello"}</tool_call>"#,
                "",
                &[("f", "\"hello\"")],
            ),
            // Characters that no JSON parser accepts are escaped.
            (
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"code\": \"a\n\tb\"}}</tool_call>",
                "",
                &[("f", r#"{"code": "a\n\tb"}"#)],
            ),
            (
                "<tool_call><tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
                "<tool_call>",
                &[("b", "{}")],
            ),
            // No closing tag between two calls.
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": {}}\n\
                 <tool_call>{\"name\": \"b\", \"arguments\": {}}</tool_call>",
                "",
                &[("a", "{}"), ("b", "{}")],
            ),
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_\
                 <tool_call>{\"name\": \"b\", \"arguments\": {}}",
                "</tool_",
                &[("a", "{}"), ("b", "{}")],
            ),
            (
                "<tool_call>{\"name\": \"b\", \"arguments\": {}} or so</tool_call>",
                " or so</tool_call>",
                &[("b", "{}")],
            ),
        ],
    );
    check_no_calls(
        "hermes",
        &[
            "<tool_call>",
            "<tool_call>not json</tool_call>",
            "<tool_call>{}</tool_call>",
            "<tool_call>[]</tool_call>",
            "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
            "<tool_call>{\"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}</tool_call>",
            "a </tool_call> b",
            "a < b <tool",
        ],
    );
}

#[test]
fn arguments_come_while_they_are_written() {
    let mut parser = tool_parser("hermes");
    assert_eq!(
        parser.push("Well<tool_call>{\"name\": \"f\", "),
        [ToolEvent::Content("Well".to_owned())]
    );
    let arguments = |text: &str| ToolEvent::CallArguments { index: 0, delta: text.to_owned() };
    let start = ToolEvent::CallStart { index: 0, name: "f".to_owned(), id: None };
    assert_eq!(parser.push("\"arguments\": {\"a\""), [start, arguments("{\"a\"")]);
    assert_eq!(parser.push(": \"x"), [arguments(": \"x")]);
    assert_eq!(parser.push("y\""), [arguments("y\"")]);
    assert_eq!(parser.push("}"), [arguments("}")]);
    assert_eq!(parser.push("}"), [ToolEvent::CallEnd { index: 0 }]);
    assert_eq!(parser.push("</tool_call>"), []);
    assert_eq!(parser.finish(), []);
}

#[test]
fn a_broken_call_keeps_its_parts() {
    let text = "Hm. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru!}} So.";
    let start = ToolEvent::CallStart { index: 0, name: "f".to_owned(), id: None };
    let broken = ToolEvent::CallBroken { index: 0 };
    assert_eq!(
        tool_events("hermes", &[text]),
        [
            ToolEvent::Content("Hm. ".to_owned()),
            start,
            ToolEvent::CallArguments { index: 0, delta: "{\"a\": tru".to_owned() },
            broken,
            ToolEvent::Content("!}} So.".to_owned()),
        ]
    );
}

#[test]
fn llama3_json() {
    check_tools(
        "llama3_json",
        &[
            ("How can I help?", "How can I help?", &[]),
            (
                "{\"name\": \"weather\", \"parameters\": {\"city\": \"a {b} [c]\", \"n\": {\"i\": \"{\"}}}",
                "",
                &[("weather", "{\"city\": \"a {b} [c]\", \"n\": {\"i\": \"{\"}}")],
            ),
            (
                "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
                "",
                &[("now", "{}")],
            ),
            (
                "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"arguments\": {}} ;\n\
                 {\"name\": \"c\", \"parameters\": {}}\n{\"name\": \"d\", \"parameters\": {}}",
                "",
                &[("a", "{}"), ("b", "{}"), ("c", "{}"), ("d", "{}")],
            ),
            (
                "Here is: {\"name\": \"f\", \"parameters\": {}} Would you like {more}?",
                "Here is:  Would you like {more}?",
                &[("f", "{}")],
            ),
            (
                "{\"name\": \"f\", \"parameters\": {\"query\": \"x\"}} I passed {\"query\": \"x\"}",
                " I passed {\"query\": \"x\"}",
                &[("f", "{\"query\": \"x\"}")],
            ),
        ],
    );
    check_no_calls(
        "llama3_json",
        &[
            "{\"parameters\": {}}",
            "{\"name\": \"toolWithoutParams\"}",
            "{\"name\": \"Bob\", \"age\": 3}",
            "{\"answer\": {\"name\": \"f\"}}",
            "{{}}",
            "<|python_tag|>brave_search.call(query=\"x\")",
        ],
    );
}

#[test]
fn mistral() {
    check_tools(
        "mistral",
        &[
            ("This is a test", "This is a test", &[]),
            (
                "[TOOL_CALLS]  [ {\"name\":\"add\" , \"arguments\" : {\"a\": 3, \"b\": 4} } ]",
                "",
                &[("add", "{\"a\": 3, \"b\": 4}")],
            ),
            (
                "[TOOL_CALLS][{\"arguments\":{\"name\": \"John\"}, \"name\": \"get_age\"}, \
                 {\"name\": \"b\", \"arguments\": {}}]",
                "",
                &[("get_age", "{\"name\": \"John\"}"), ("b", "{}")],
            ),
            (
                "Hello[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}]\nextra",
                "Hello\nextra",
                &[("f", "{\"a\": \"]\"}")],
            ),
            (
                "hi{hi[TOOL_CALLS]bash{\"command\": \"print(\\\"hello\\\")\\nr'{}'\"}",
                "hi{hi",
                &[("bash", "{\"command\": \"print(\\\"hello\\\")\\nr'{}'\"}")],
            ),
            (
                "[TOOL_CALLS]add{\"a\": 3.5}[TOOL_CALLS]multiply_all{\"a\": 3, \"b\": {}}",
                "",
                &[("add", "{\"a\": 3.5}"), ("multiply_all", "{\"a\": 3, \"b\": {}}")],
            ),
            ("[TOOL_CALLS]now[ARGS]{}", "", &[("now", "{}")]),
        ],
    );
    check_no_calls(
        "mistral",
        &[
            "[TOOL_CALLS] not json at all",
            "[TOOL_CALLS]name_without_arguments",
            "[TOOL_CALLS][]",
            "[TOOL_CALLS]{}",
            "[TOOL_",
            "see [1] and [TOOL]",
        ],
    );
}

#[test]
fn mistral_calls_have_ids_of_nine_characters() {
    assert_eq!(tool_parser("mistral").call_id_format(), CallIdFormat::NineAlphanumerics);
    assert_eq!(tool_parser("hermes").call_id_format(), CallIdFormat::Any);
    let events = tool_events("mistral", &["[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}"]);
    let message = message_of(events);
    assert_eq!(message.calls[0].id.as_deref(), Some("abcdefghi"));
    assert_eq!((&*message.calls[0].name, &*message.calls[0].arguments), ("now", "{}"));
}

#[test]
fn granite() {
    check_tools(
        "granite",
        &[
            ("A [plain] answer.", "A [plain] answer.", &[]),
            (
                "<|tool_call|> [\n  {\"name\": \"weather\", \"arguments\": {\"city\": \"Tokyo\"}},\n  \
                 {\"arguments\": {\"zone\": \"é\"}, \"name\": \"get_time\"}\n]",
                "",
                &[("weather", "{\"city\": \"Tokyo\"}"), ("get_time", "{\"zone\": \"é\"}")],
            ),
            (
                "I look.\n<tool_call> [{\"name\": \"f\", \"arguments\": {\"q\": \"say \\\"hi\\\"\", \
                 \"n\": null}}]\nI'll wait.",
                "I look.\n\nI'll wait.",
                &[("f", "{\"q\": \"say \\\"hi\\\"\", \"n\": null}")],
            ),
            ("<|tool_call|>[{\"name\": \"refresh\", \"arguments\": {}}]", "", &[("refresh", "{}")]),
        ],
    );
    check_no_calls(
        "granite",
        &[
            "<|tool_call|> {\"name\": \"func\", \"arguments\": {}}",
            "<|tool_call|>[{\"name\": \"func\", \"arguments\": \"not a dict\"}]",
            "Some text [{\"name\": \"func\"}]",
            "<tool_call>[{\"name\": \"func\"}]",
        ],
    );
}

#[test]
fn phi4_mini_json() {
    check_tools(
        "phi4_mini_json",
        &[
            ("functools are functions.", "functools are functions.", &[]),
            (
                "functools[\n  {\"name\": \"weather\", \"arguments\": {\"city\": \"Tokyo\"}},\n  \
                 {\"name\": \"now\", \"parameters\": {}}\n]",
                "",
                &[("weather", "{\"city\": \"Tokyo\"}"), ("now", "{}")],
            ),
            (
                "I look.\nfunctools[{\"name\": \"f\", \"arguments\": {\"a\": [\"]\", {\"b\": 1}]}}]\nMore?",
                "I look.\n\nMore?",
                &[("f", "{\"a\": [\"]\", {\"b\": 1}]}")],
            ),
        ],
    );
    check_no_calls(
        "phi4_mini_json",
        &[
            "functools[{\"name\": \"func\", \"arguments\": \"not a dict\"}]",
            "functools{\"name\": \"func\"}",
            "functools[{\"name\": \"func\"}]",
            "functools[] This is just text",
            "functools[ This is just text ]",
            "func",
        ],
    );
}

#[test]
fn json() {
    check_tools(
        "json",
        &[
            ("No calls.", "No calls.", &[]),
            (
                " {\"name\": \"weather\", \"parameters\": {\"city\": \"Köln\"}}",
                "",
                &[("weather", "{\"city\": \"Köln\"}")],
            ),
            (
                "[{\"name\": \"a\", \"parameters\": {\"x\": 1}}, {\"name\": \"b\", \"arguments\": {}}]",
                "",
                &[("a", "{\"x\": 1}"), ("b", "{}")],
            ),
            (
                "{\"name\": \"a\", \"parameters\": {}}\n{\"name\": \"b\", \"parameters\": {}} Done.",
                " Done.",
                &[("a", "{}"), ("b", "{}")],
            ),
        ],
    );
    check_no_calls(
        "json",
        &[
            "An example: {\"name\": \"a\", \"parameters\": {}}",
            "[1, 2]",
            "[]",
            "{\"name\": \"Bob\", \"age\": 3}",
        ],
    );
}
