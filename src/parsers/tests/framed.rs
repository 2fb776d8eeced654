//! Thoughts whose answer is within tags of its own, and thoughts within the answer.

use super::{
    ReasoningStart,
    reasoning::{check, prompted},
    reasoning_events,
};

/// The format of vLLM's `Ernie45ReasoningParser`.
#[test]
fn ernie45() {
    let thinks = [
        ("abc\n</think>\n\n\n<response>\ndef\n</response>\n", "abc\n", "def"),
        ("abc\n</think>\ndef", "abc\n", "\ndef"),
        ("<think>abc</think><response>def</response>", "abc", "def"),
        ("abc</think><response>cut o", "abc", "cut o"),
        ("abc</think><resp", "abc", "<resp"),
        ("abc", "abc", ""),
        // Tags within the answer are a part of it.
        (
            "a</think><response>Write </response> at its end.</response>",
            "a",
            "Write </response> at its end.",
        ),
        ("a</think>So: <response>b</response>", "a", "So: <response>b</response>"),
        ("a</think>\n\n<tool_call>\n{}</tool_call>", "a", "\n\n<tool_call>\n{}</tool_call>"),
    ];
    check("ernie45", &ReasoningStart::default(), &thinks);
    check("ernie45", &prompted("Assistant: <think>\n"), &thinks);
}

/// The format of vLLM's `HunyuanA13BReasoningParser`.
#[test]
fn hunyuan_a13b() {
    let table = [
        ("<think>\nso\n</think>\n<answer>\nIt is.\n</answer>", "\nso\n", "It is."),
        ("<think>\n\n</think>\n<answer>\nIt is.\n</answer>", "\n\n", "It is."),
        ("<answer>\nIt is.\n</answer>", "", "It is."),
        ("It is.", "", "It is."),
        ("<think>so", "so", ""),
    ];
    check("hunyuan_a13b", &ReasoningStart::default(), &table);
}

/// The markers of the chat templates of Command R7B, Command A and Command A Reasoning.
#[test]
fn cohere_command() {
    let call = "<|START_ACTION|>[{\"tool_name\": \"now\", \"parameters\": {}}]<|END_ACTION|>";
    for name in ["cohere_command3", "cohere_command4"] {
        let table = [
            (
                "<|START_THINKING|>so<|END_THINKING|><|START_RESPONSE|>It is.<|END_RESPONSE|>",
                "so",
                "It is.",
            ),
            (
                "<|START_THINKING|>so<|END_THINKING|><|START_TEXT|>It is.<|END_TEXT|>",
                "so",
                "It is.",
            ),
            (&*format!("<|START_THINKING|>I look.<|END_THINKING|>{call}"), "I look.", call),
            ("<|START_RESPONSE|>It is.<|END_RESPONSE|>", "", "It is."),
            ("It is.", "", "It is."),
        ];
        check(name, &ReasoningStart::default(), &table);
        let closed = "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>";
        let answers = [("<|START_RESPONSE|>It is.<|END_RESPONSE|>", "", "It is.")];
        check(name, &prompted(closed), &answers);
        let opened = [("It is.<|END_RESPONSE|>", "", "It is.")];
        check(name, &prompted("<|CHATBOT_TOKEN|><|START_RESPONSE|>"), &opened);
    }
}

/// As vLLM's `MiniMaxM2AppendThinkReasoningParser`.
#[test]
fn thoughts_of_minimax_m2_stay_in_the_answer() {
    let content = |pieces: &[&str]| {
        let events =
            reasoning_events("minimax_m2_append_think", &ReasoningStart::default(), pieces);
        super::parts(&events)
    };
    let whole = (String::new(), "<think>so</think>\n\nIt is.".to_owned());
    assert_eq!(content(&["so</think>\n\nIt is."]), whole);
    assert_eq!(content(&["", "so", "</think>", "\n\nIt is."]), whole);
}
