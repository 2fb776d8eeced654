//! Formats whose calls are a name between markers, and JSON.

use super::{check_no_calls, check_tools, message_of, stopped_message, tool_events};

#[test]
fn deepseek_v3() {
    check_tools(
        "deepseek_v3",
        &[
            ("How can I help? < |", "How can I help? < |", &[]),
            (
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n\
                 {\"city\": \"Tokyo\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                "",
                &[("weather", "{\"city\": \"Tokyo\"}")],
            ),
            (
                "I look.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n\
                 {\"t\": \"```\\n{\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function\
                 <｜tool▁sep｜>b\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>Then.",
                "I look.\nThen.",
                &[("a", "{\"t\": \"```\\n{\"}"), ("b", "{}")],
            ),
            // Without the section, and cut off after the arguments.
            (
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n``",
                "",
                &[("now", "{}")],
            ),
        ],
    );
    check_no_calls(
        "deepseek_v3",
        &[
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>weather\n```json\n{}",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n[]",
        ],
    );
}

#[test]
fn deepseek_v31() {
    check_tools(
        "deepseek_v31",
        &[
            ("Plain.", "Plain.", &[]),
            (
                "Hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"é\"}\
                 <｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>\
                 <｜tool▁calls▁end｜>",
                "Hm",
                &[("weather", "{\"city\": \"é\"}"), ("now", "{}")],
            ),
        ],
    );
    check_no_calls("deepseek_v31", &["<｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>"]);
}

const SECTION: &str = "<|tool_calls_section_begin|>";
const SECTION_END: &str = "<|tool_calls_section_end|>";

fn kimi(id: &str, arguments: &str) -> String {
    format!("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
}

#[test]
fn kimi_k2() {
    let (a, b) = (kimi("functions.a:0 ", " {\"x\": \"<b>\"} "), kimi("b_c.d:1", "{\n}"));
    check_tools(
        "kimi_k2",
        &[
            ("This is a test", "This is a test", &[]),
            (
                &format!("I look. {SECTION}{a}\n{b}{SECTION_END} Done."),
                "I look.  Done.",
                &[("a", "{\"x\": \"<b>\"}"), ("b_c.d", "{\n}")],
            ),
            (&a, "", &[("a", "{\"x\": \"<b>\"}")]),
            // The end of the first section is missing.
            (
                &format!("{SECTION}{a}{SECTION}{b}{SECTION_END}"),
                "",
                &[("a", "{\"x\": \"<b>\"}"), ("b_c.d", "{\n}")],
            ),
            (
                &format!("{SECTION}{}{b}{SECTION_END}", kimi("functions.bad.0", "{}")),
                &format!("{SECTION}{}", kimi("functions.bad.0", "{}")),
                &[("b_c.d", "{\n}")],
            ),
        ],
    );
    check_no_calls("kimi_k2", &[SECTION, &kimi("0", "{}"), &kimi(":0", "{}"), &kimi("f:0", "x")]);
    let message = message_of(tool_events("kimi_k2", &[&a]));
    assert_eq!(message.calls[0].id.as_deref(), Some("functions.a:0"));
}

#[test]
fn kimi_k2_counts_alone_where_there_is_one_tool() {
    let tools = super::Tools::from_request(&[serde_json::json!({"name": "now"})]);
    let parser = super::Registry::default().tool_parser("kimi_k2").unwrap()(&tools);
    let message = message_of(super::tool_events_of(parser, &[&kimi("0", "{}")]));
    assert_eq!(message.calls[0].id.as_deref(), Some("0"));
    assert_eq!(message.calls[0].name, "now");
}

#[test]
fn openai() {
    check_tools(
        "openai",
        &[
            ("Just text <b>.", "Just text <b>.", &[]),
            ("<|channel|>final<|message|>This is it.<|return|>", "This is it.", &[]),
            (
                "<|channel|>analysis<|message|>Need f.<|end|><|start|>assistant<|channel|>commentary \
                 to=functions.weather <|constrain|>json<|message|>{\"city\": \"Tokyo\"}<|call|>",
                "",
                &[("weather", "{\"city\": \"Tokyo\"}")],
            ),
            // Without the last marker, which ended the answer; recipients before the channel.
            (
                " to=functions.a<|channel|>commentary json<|message|>{\n\"x\": \"<|\"\n}<|end|>\
                 <|start|>assistant to=b<|channel|>commentary<|message|><|end|>\
                 <|start|>assistant<|channel|>final<|message|>Done.<|end|>\
                 <|start|>assistant<|channel|>commentary to=c<|message|>{}",
                "Done.",
                &[("a", "{\n\"x\": \"<|\"\n}"), ("b", "{}"), ("c", "{}")],
            ),
            // A preamble, and a message that begins without the end of the last.
            (
                "<|channel|>commentary<|message|>I look.<|channel|>commentary to=functions.now\
                 <|message|>{}<|start|>assistant<|channel|>final<|message|>So.",
                "I look.So.",
                &[("now", "{}")],
            ),
        ],
    );
    check_no_calls("openai", &["<|channel|>commentary to=functions.f", "to=x y", "a <|end|> b"]);
    let cut = "<|channel|>commentary to=functions.f<|message|>{\"a\": ";
    check_tools("openai", &[(cut, "", &[("f", "{\"a\": ")])]);
}

#[test]
fn openai_takes_free_text_for_arguments() {
    let text = "<|channel|>commentary to=functions.run<|message|>ls -l<|call|>";
    let message = message_of(tool_events("openai", &[text]));
    assert_eq!(message.calls[0].arguments, "ls -l");
}

/// The marker that ends a call also ends the answer, and then the text does not show it.
#[test]
fn openai_takes_the_end_of_the_answer_for_that_of_a_call() {
    for (body, arguments) in [("ls -l", "ls -l"), ("", "{}"), ("{\"a\": 1}", "{\"a\": 1}")] {
        let text = format!("<|channel|>commentary to=functions.run<|message|>{body}");
        let message = stopped_message("openai", &text);
        assert_eq!((&*message.calls[0].arguments, &*message.content), (arguments, ""), "{text}");
    }
    let header = "<|channel|>commentary to=functions.run";
    assert_eq!(stopped_message("openai", header).content, header);
}

#[test]
fn gemma4() {
    check_tools(
        "gemma4",
        &[
            ("It is < 3 {a}.", "It is < 3 {a}.", &[]),
            (
                "I look.<|tool_call>call:weather{city:<|\"|>Aix \"1\"<|\"|>,days:3}<tool_call|>",
                "I look.",
                &[("weather", "{\"city\": \"Aix \\\"1\\\"\", \"days\": 3}")],
            ),
            // Calls follow each other, and arguments nest.
            (
                "<|tool_call>call:a.b-c{x:{y:[1,<|\"|>}<|\"|>]},z:true}<tool_call|>\
                 <|tool_call>call:now{}<tool_call|>",
                "",
                &[("a.b-c", "{\"x\": {\"y\": [1, \"}\"]}, \"z\": true}"), ("now", "{}")],
            ),
            // The end marker may lack, and other text may follow.
            ("<|tool_call>call:now{} Then.", " Then.", &[("now", "{}")]),
        ],
    );
    check_no_calls(
        "gemma4",
        &[
            "<|tool_call>",
            "<|tool_call>now{}",
            "<|tool_call>call:{}",
            "<|tool_call>call:f(1)<tool_call|>",
        ],
    );
}
