//! `playhouse generate`, on the demo model.

use std::io::Read;

use serde_json::Value;

use crate::process::playhouse;

const SMALL: &[&str] = &["--max-model-len", "512", "--max-num-seqs", "8", "--max-tokens", "12"];

fn generate(arguments: &[&str]) -> crate::process::Run {
    playhouse(&[&["generate"], SMALL, arguments].concat())
}

fn json(run: crate::process::Run) -> Vec<Value> {
    let output = run.succeeds();
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_stream_is_the_complete_text() {
    let greedy = ["--temperature", "0", "--ignore-eos", "Once upon a time"];
    let streamed = generate(&greedy).succeeds();
    let complete = json(generate(&[&["--output", "json"], &greedy[..]].concat()));
    let choice = &complete[0]["choices"][0];
    assert_eq!(streamed, format!("{}\n", choice["text"].as_str().unwrap()));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 12);
    assert_eq!(complete[0]["usage"]["completion_tokens"], 12);
}

#[test]
fn a_seed_makes_samples_repeatable_whatever_else_is_in_the_batch() {
    let seeded = ["--temperature", "1", "--seed", "7", "--ignore-eos", "--output", "json"];
    let alone = json(generate(&[&seeded[..], &["one"]].concat()));
    let together =
        json(generate(&[&seeded[..], &["one", "a longer second prompt", "three"]].concat()));
    assert_eq!(together.len(), 3);
    assert_eq!(alone[0]["choices"], together[0]["choices"]);
    assert_ne!(together[1]["choices"], together[2]["choices"]);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let greedy = ["--temperature", "0", "--ignore-eos", "--output", "json"];
    let one = json(generate(&[&greedy[..], &["--threads", "1", "Once upon a time"]].concat()));
    let three = json(generate(&[&greedy[..], &["--threads", "3", "Once upon a time"]].concat()));
    assert_eq!(one, three);
}

#[test]
fn n_outputs_differ() {
    let hot = ["-n", "3", "--temperature", "2", "--top-p", "1", "--output", "json"];
    let outputs = json(generate(&[&hot[..], &["Once"]].concat()));
    let choices = outputs[0]["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    assert_ne!(choices[0]["token_ids"], choices[1]["token_ids"]);
}

#[test]
fn prompts_come_from_a_pipe_or_a_file() {
    let greedy = ["--temperature", "0", "--ignore-eos"];
    let argument = generate(&[&greedy[..], &["Once upon a time"]].concat()).succeeds();
    assert_eq!(generate(&greedy).input("Once upon a time").succeeds(), argument);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Once upon a time").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(generate(&[&greedy[..], &["-f", path]].concat()).succeeds(), argument);
}

#[test]
fn a_refused_request_says_why() {
    let stderr = generate(&["--top-p", "1.5", "x"]).fails_with(1);
    assert!(stderr.contains("top_p must be a number in (0, 1], got 1.5"), "{stderr}");
    let stderr = generate(&[]).input(&"word ".repeat(1000)).fails_with(1);
    assert!(stderr.contains("maximum context length is 512 tokens"), "{stderr}");
    let stderr = generate(&[]).input(&"word ".repeat(9000)).fails_with(1);
    assert!(stderr.contains("45000 bytes of text"), "{stderr}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = playhouse(&["generate", "--max-tokens", "3000", "--ignore-eos", "x"]).spawn();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
