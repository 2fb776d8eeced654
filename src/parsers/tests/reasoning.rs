//! Tests of the formats of thoughts.

use super::{ReasoningStart, Registry, all_cuts, boundaries, parts, pieces, reasoning_events};

/// A complete output, its thoughts and its content.
pub(super) type Whole<'a> = (&'a str, &'a str, &'a str);

/// Checks a parser against a table. Each output is cut into pieces at every place, and stopped at
/// every place.
pub(super) fn check(parser: &str, start: &ReasoningStart<'_>, table: &[Whole<'_>]) {
    for (text, reasoning, content) in table {
        let events = reasoning_events(parser, start, &[text]);
        let (found_reasoning, found_content) = parts(&events);
        assert_eq!(found_reasoning, *reasoning, "{parser}: {text}");
        assert_eq!(found_content, *content, "{parser}: {text}");
        for cuts in all_cuts(text) {
            let pieces = pieces(text, &cuts);
            assert_eq!(reasoning_events(parser, start, &pieces), events, "{parser}: {pieces:?}");
        }
        for end in boundaries(text) {
            // The parts of a stopped output are never longer than the output.
            let (reasoning, content) = parts(&reasoning_events(parser, start, &[&text[..end]]));
            assert!(reasoning.len() + content.len() <= end, "{parser}: {}", &text[..end]);
        }
    }
}

fn told(thinking: bool) -> ReasoningStart<'static> {
    ReasoningStart { thinking: Some(thinking), ..ReasoningStart::default() }
}

pub(super) fn prompted(prompt: &str) -> ReasoningStart<'_> {
    ReasoningStart { prompt: Some(prompt), ..ReasoningStart::default() }
}

#[test]
fn deepseek_r1() {
    let table: &[Whole<'_>] = &[
        ("so it is</think>It is.", "so it is", "It is."),
        ("<think>so\nit is</think>\n\nIt is <b>.", "so\nit is", "\n\nIt is <b>."),
        ("\n<think>so</think>", "so", ""),
        ("so it is", "so it is", ""),
        ("<think>cut </thi", "cut </thi", ""),
        ("</think>It is.", "", "It is."),
        ("a < b <think> c</think>d <think>e</think>", "a < b <think> c", "d <think>e</think>"),
        ("", "", ""),
        (" ", " ", ""),
    ];
    check("deepseek_r1", &ReasoningStart::default(), table);
    check("deepseek_r1", &prompted("<｜Assistant｜><think>\n"), table);
    check("deepseek_r1", &prompted("<｜Assistant｜>"), table);
    let closed = [("It is.", "", "It is."), (" ", "", " "), ("<think>a</think>b", "a", "b")];
    check("deepseek_r1", &prompted("<｜Assistant｜><think>\n\n</think>\n\n"), &closed);
    check("deepseek_r1", &told(false), &closed);
}

#[test]
fn deepseek_v3() {
    let answers = [
        ("It is.", "", "It is."),
        ("<think>so</think>It is.", "so", "It is."),
        ("It is</think>.", "", "It is</think>."),
    ];
    check("deepseek_v3", &prompted("<｜Assistant｜></think>"), &answers);
    check("deepseek_v3", &ReasoningStart::default(), &answers);
    let thinks = [("so it is</think>It is.", "so it is", "It is."), ("so", "so", "")];
    check("deepseek_v3", &prompted("<｜Assistant｜><think>"), &thinks);
}

#[test]
fn kimi_k2() {
    let calls = "<|tool_calls_section_begin|><|tool_call_begin|>";
    let thinks = [
        ("<think>so</think>It is.", "so", "It is."),
        ("so</think>It is.", "so", "It is."),
        ("so it is", "so it is", ""),
        (&*format!("I read.{calls}"), "I read.", calls),
    ];
    check("kimi_k2", &ReasoningStart::default(), &thinks);
    check("kimi_k2", &prompted("<|im_assistant|>assistant<|im_middle|>"), &thinks);
    check("kimi_k2", &told(false), &[("It is.", "", "It is.")]);
    assert!(special("kimi_k2"));
}

#[test]
fn seed_oss() {
    let thinks = [
        ("<seed:think>so</seed:think>It is.", "so", "It is."),
        ("so it <think>is</seed:think>It is.", "so it <think>is", "It is."),
        ("so it is", "so it is", ""),
    ];
    check("seed_oss", &ReasoningStart::default(), &thinks);
    check("seed_oss", &prompted("<seed:bos>assistant\n"), &thinks);
}

#[test]
fn qwen3() {
    let call = "<tool_call>\n<function=bash>\n</function>\n</tool_call>";
    let thinks = [
        ("so it is</think>It is.", "so it is", "It is."),
        ("<think>so it is</think>It is.", "so it is", "It is."),
        ("so it is", "so it is", ""),
        ("<think>so it is", "so it is", ""),
        (&*format!("I read.\n\n{call}"), "I read.\n\n", call),
        (&*format!("<think>I read.{call}"), "I read.", call),
        (&*format!("<think>\n\n</think>\n\n{call}"), "\n\n", &*format!("\n\n{call}")),
        (call, "", call),
    ];
    check("qwen3", &ReasoningStart::default(), &thinks);
    check("qwen3", &prompted("<|im_start|>assistant\n<think>\n"), &thinks);
    check("qwen3", &told(true), &thinks);
    let may_think = [
        ("It is.", "", "It is."),
        ("<think>so</think>It is.", "so", "It is."),
        (&*format!("I read.\n{call}"), "", &*format!("I read.\n{call}")),
        ("As I said: <think>", "", "As I said: <think>"),
    ];
    check("qwen3", &told(false), &may_think);
    check("qwen3", &prompted("<|im_start|>assistant\n"), &may_think);
    check("qwen3", &prompted("<|im_start|>assistant\n<think>\n\n</think>\n\n"), &may_think);
}

#[test]
fn glm45() {
    let table = [
        ("<think>so\nit is</think>It is.", "so\nit is", "It is."),
        ("\n<think></think>It is.", "", "It is."),
        ("It is.", "", "It is."),
        ("\n It is.", "", "\n It is."),
        ("<think>so it", "so it", ""),
        ("<think>so<tool_call>now</tool_call>", "so", "<tool_call>now</tool_call>"),
        ("<thinking>", "", "<thinking>"),
        ("<<EOF", "", "<<EOF"),
    ];
    check("glm45", &ReasoningStart::default(), &table);
    check("glm45", &prompted("<|assistant|>"), &table);
    check("glm45", &prompted("<|assistant|>\n<think>"), &[("so</think>It", "so", "It")]);
}

#[test]
fn mistral() {
    let table = [
        ("[THINK]so[/THINK]It is.", "so", "It is."),
        ("Well, [THINK]so[/THINK]It is [THINK].", "so", "Well, It is [THINK]."),
        ("It is [1].", "", "It is [1]."),
        ("[THINK]so it", "so it", ""),
        ("It [/THINK] is.", "", "It [/THINK] is."),
    ];
    check("mistral", &ReasoningStart::default(), &table);
    assert!(special("mistral"));
}

#[test]
fn granite() {
    let table = [
        ("Here is my thought process: so Here is my response: It is.", " so ", " It is."),
        ("Here's my thought process:so\nHere's my response:It", "so\n", "It"),
        ("Here is my thought", "", "Here is my thought"),
        ("Here is my answer: x", "", "Here is my answer: x"),
        ("Here is my thought process: Here is so", " Here is so", ""),
        ("It is. Here is my thought process: x", "", "It is. Here is my thought process: x"),
        ("HHere is", "", "HHere is"),
    ];
    check("granite", &ReasoningStart::default(), &table);
    assert!(!special("granite"));
}

#[test]
fn openai_gptoss() {
    let call =
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
    let table = [
        (
            "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>It \
             is.<|return|>",
            "so",
            "It is.",
        ),
        ("<|channel|>analysis<|message|>so it <|", "so it <|", ""),
        (
            &*format!("<|channel|>analysis<|message|>so<|end|>{call}<|call|>"),
            "so",
            &*format!("{call}<|call|>"),
        ),
        (&*format!("<|channel|>analysis<|message|>so{call}"), "so", call),
        ("It is <b>.", "", "It is <b>."),
        ("<|channel|>commentary<|message|>I look.<|end|>", "", "I look."),
    ];
    check("openai_gptoss", &ReasoningStart::default(), &table);
    assert!(special("openai_gptoss"));
}

#[test]
fn muse() {
    let call = "<|start|>assistant to=f<|message|><atem:invoke name=\"f\"></atem:invoke><|eom|>";
    let table = [
        (
            " to=self<|message|>so to=it<|eom|> to=user<|message|>It is.<|eot|>",
            "so to=it",
            "It is.",
        ),
        (&*format!("to=self<|message|>so<|eom|>\n{call}"), "so", call),
        (" to=self<|message|>so it <|", "so it <|", ""),
        ("It is <b> to=x", "", "It is <b> to=x"),
    ];
    for name in ["muse", "muse_glimmer"] {
        check(name, &ReasoningStart::default(), &table);
        check(name, &prompted("<|start|>user<|message|>Hi<|eot|><|start|>assistant"), &table);
        let opened = [("so<|eom|> to=user<|message|>It is.", "so", "It is.")];
        check(name, &prompted("<|start|>assistant to=self<|message|>"), &opened);
        let answers = [("It is.<|eot|>", "", "It is.")];
        check(name, &prompted("<|start|>assistant to=user<|message|>"), &answers);
        assert!(special(name));
    }
    let bare = "<|message|>so<|eom|> to=commentary<|message|>It is.<|eom|>";
    check("muse", &ReasoningStart::default(), &[(bare, "so", "It is.")]);
    let kept = "so to=commentary<|message|>It is.<|eom|>";
    check("muse_glimmer", &ReasoningStart::default(), &[(bare, "", kept)]);
}

#[test]
fn minicpmv() {
    let table = [
        ("<think>so\\nit</think>It\\r\\nis.<|im_end|>", "so\nit", "It\nis."),
        ("so\\</think>nIt", "so\\", "nIt"),
        ("so `\\n` $\\nu$", "so `\\n` $\\nu$", ""),
    ];
    check("minicpmv", &ReasoningStart::default(), &table);
    check("minicpmv", &prompted("<|im_start|>assistant\n<think>\n"), &table);
    check("minicpmv", &told(false), &[("It\\nis.", "", "It\nis.")]);
}

fn special(name: &str) -> bool {
    let factory = Registry::default().reasoning_parser(name).unwrap();
    factory(&ReasoningStart::default()).needs_special_tokens()
}

#[test]
fn a_parser_knows_whether_thoughts_come_first() {
    let starts = |name: &str, start: &ReasoningStart<'_>| {
        Registry::default().reasoning_parser(name).unwrap()(start).starts_in_reasoning()
    };
    assert!(starts("deepseek_r1", &ReasoningStart::default()));
    assert!(!starts("deepseek_r1", &told(false)));
    assert!(starts("qwen3", &prompted("<think>\n")));
    assert!(!starts("qwen3", &prompted("assistant\n")));
    assert!(!starts("glm45", &told(true)));
}

#[test]
fn gemma4() {
    let call = "<|tool_call>call:now{}<tool_call|>";
    let table: &[Whole<'_>] = &[
        ("<|channel>thought\nso it is<channel|>It is.", "so it is", "It is."),
        ("<|channel>so it is<channel|>It is.", "so it is", "It is."),
        ("<|channel>thought\n<channel|>It is.", "", "It is."),
        ("<|channel>thoughts<channel|>It is.", "thoughts", "It is."),
        ("<|channel>thought", "thought", ""),
        ("It is.", "", "It is."),
        ("thought\nIt is.", "", "thought\nIt is."),
        (&*format!("<|channel>thought\nI call.{call}"), "I call.", call),
        (call, "", call),
    ];
    check("gemma4", &ReasoningStart::default(), table);
    check("gemma4", &prompted("<turn|>\n<|turn>model\n"), table);
    let opened = [("so it is<channel|>It is.", "so it is", "It is.")];
    check("gemma4", &prompted("<|turn>model\n<|channel>thought\n"), &opened);
    let closed = [("It is.", "", "It is."), (call, "", call)];
    check("gemma4", &prompted("<|turn>model\n<|channel>thought\n<channel|>"), &closed);
}
