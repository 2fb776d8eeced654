//! `playhouse chat`, on the demo model.

use crate::process::{Run, playhouse};

fn chat(arguments: &[&str]) -> Run {
    let small = ["chat", "--max-model-len", "1024", "--max-num-seqs", "4"];
    let greedy = ["--temperature", "0", "--max-tokens", "8", "--ignore-eos"];
    playhouse(&[&small[..], &greedy, arguments].concat())
}

#[test]
fn one_question_has_one_answer() {
    let answer = chat(&["-q", "Who are you?"]).succeeds();
    assert!(answer.trim().chars().count() > 3, "{answer:?}");
    assert_eq!(chat(&["-q", "Who are you?"]).succeeds(), answer);
}

#[test]
fn a_pipe_is_a_question_a_line() {
    let answer = chat(&["-q", "Hello"]).succeeds();
    let cleared = chat(&[]).input("Hello\n\n/clear\nHello\n/exit\nHello\n").succeeds();
    assert_eq!(cleared, answer.repeat(2), "a cleared conversation begins anew, and /exit ends it");
    let remembered = chat(&[]).input("Hello\nHello\n").succeeds();
    assert!(remembered.starts_with(&answer));
    assert_ne!(remembered, answer.repeat(2), "the second answer knows the first");
}

#[test]
fn the_system_prompt_counts() {
    let without = chat(&["-q", "Hello"]).succeeds();
    let with = chat(&["--system-prompt", "Be brief.", "-q", "Hello"]).succeeds();
    assert_ne!(with, without);
    assert_eq!(chat(&[]).input("/system Be brief.\nHello\n").succeeds(), with);
}

#[test]
fn a_question_that_fails_does_not_end_the_conversation() {
    let answer = chat(&["-q", "Hello"]).succeeds();
    let long = "word ".repeat(2000);
    let (code, stdout, stderr) = chat(&[]).input(&format!("{long}\nHello\n")).finish();
    assert_eq!((code, stdout), (Some(0), answer));
    assert!(stderr.contains("error: the request was refused: "), "{stderr}");
}
