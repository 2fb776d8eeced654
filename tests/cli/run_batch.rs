//! `playhouse run-batch`, on the demo model.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Run, playhouse};

const SMALL: &[&str] =
    &["run-batch", "--max-model-len", "512", "--max-num-seqs", "8", "--served-model-name", "demo"];

fn run_batch(input: &str, output: &str) -> Run {
    playhouse(&[SMALL, &["-i", input, "-o", output]].concat())
}

fn completion(custom_id: &str, prompt: &str) -> Value {
    let body = json!({"model": "demo", "prompt": prompt, "max_tokens": 4, "temperature": 0});
    json!({"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body})
}

fn chat(custom_id: &str) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "demo", "messages": messages, "max_tokens": 4});
    json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
}

fn lines(requests: &[Value]) -> String {
    requests.iter().map(|request| format!("{request}\n")).collect()
}

fn answers(text: &str) -> Vec<Value> {
    let mut answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["custom_id"].to_string());
    answers
}

fn files() -> (TempDir, String, String) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, output) = (path("in.jsonl"), path("out.jsonl"));
    (folder, input, output)
}

#[test]
fn every_line_gets_its_answer_and_a_rerun_asks_only_for_the_rest() {
    let (_folder, input, output) = files();
    let first = [completion("a", "Once upon a time"), chat("b")];
    fs::write(&input, lines(&first)).unwrap();
    assert_eq!(run_batch(&input, &output).succeeds(), "");
    let done = fs::read_to_string(&output).unwrap();
    let found = answers(&done);
    assert_eq!(found.len(), 2);
    for answer in &found {
        assert!(answer["id"].is_string());
        assert_eq!(
            (&answer["error"], &answer["response"]["status_code"]),
            (&json!(null), &json!(200))
        );
        assert!(answer["response"]["request_id"].is_string());
    }
    assert_eq!(found[0]["response"]["body"]["object"], "text_completion");
    assert_eq!(found[1]["response"]["body"]["object"], "chat.completion");

    // The run was killed during a write. The next run asks again for that line only.
    fs::write(&output, format!("{done}{}", r#"{"id":"batch_req_half a li"#)).unwrap();
    let more = [first.as_slice(), &[completion("c", "x")]].concat();
    fs::write(&input, lines(&more)).unwrap();
    assert_eq!(run_batch(&input, &output).succeeds(), "");
    let after = fs::read_to_string(&output).unwrap();
    assert_eq!(after.strip_prefix(&done).unwrap().lines().count(), 1);
    assert_eq!(answers(&after)[2]["custom_id"], "c");
}

#[test]
fn a_faulty_line_has_its_error_as_answer_and_changes_the_exit_code() {
    let (_folder, input, output) = files();
    let mut unknown = completion("unknown", "x");
    unknown["body"]["model"] = "other".into();
    let mut elsewhere = completion("elsewhere", "x");
    elsewhere["url"] = "/v1/images/generations".into();
    let mut pooled = completion("pooled", "x");
    pooled["url"] = "/v1/embeddings".into();
    let requests =
        [completion("fine", "x"), unknown, elsewhere, pooled, completion("fine", "again")];
    fs::write(&input, format!("not json\n\n{}", lines(&requests))).unwrap();
    let stderr = run_batch(&input, &output).fails_with(1);
    assert!(stderr.contains("5 of 6 requests did not succeed"), "{stderr}");
    let text = fs::read_to_string(&output).unwrap();
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = |part: &str| {
        let found = all.iter().find(|answer| {
            answer["error"]["message"].as_str().is_some_and(|message| message.contains(part))
        });
        found.unwrap_or_else(|| panic!("no error says {part:?}: {text}")).clone()
    };
    assert_eq!(error("no JSON object")["error"]["line"], 1);
    assert_eq!(error("`other` does not exist")["response"]["status_code"], 404);
    assert_eq!(error("/v1/images/generations")["response"], json!(null));
    assert_eq!(error("does not support Embeddings API")["custom_id"], "pooled");
    assert_eq!(error("used by a line before")["custom_id"], "fine");
    let rerun = run_batch(&input, &output).fails_with(1);
    assert!(rerun.contains("5 of 6"), "{rerun}");
    assert_eq!(fs::read_to_string(&output).unwrap(), text, "nothing is asked again");
}

#[test]
fn pipes_are_files_too_and_the_answers_are_the_servers() {
    let requests = lines(&[completion("a", "Once upon a time")]);
    let output = run_batch("-", "-").input(&requests).succeeds();
    let generated = playhouse(&[
        "generate",
        "--max-model-len",
        "512",
        "--max-tokens",
        "4",
        "--temperature",
        "0",
        "Once upon a time",
    ]);
    let text = |output: &str| answers(output)[0]["response"]["body"]["choices"][0]["text"].clone();
    assert_eq!(format!("{}\n", text(&output).as_str().unwrap()), generated.succeeds());
    // A pipe with a name, for example a shell's <(...).
    let named = run_batch("/dev/stdin", "-").input(&requests).succeeds();
    assert_eq!(text(&named), text(&output));
}

#[test]
fn unusable_files_are_reported_before_the_model_is_loaded() {
    let (folder, input, output) = files();
    let stderr = run_batch(&input, &output).fails_with(1);
    assert!(stderr.contains("in.jsonl"), "{stderr}");
    assert!(!Path::new(&output).exists(), "nothing was begun");
    fs::write(&input, "").unwrap();
    fs::write(&output, "dear diary\n").unwrap();
    assert!(run_batch(&input, &output).fails_with(2).contains("no answer of run-batch"));
    assert_eq!(fs::read_to_string(&output).unwrap(), "dear diary\n");
    let same = format!("{}/./in.jsonl", folder.path().display());
    assert!(run_batch(&input, &same).fails_with(2).contains("must not be the same file"));
    drop(folder);
}

#[test]
fn an_interrupted_run_leaves_whole_lines_and_goes_on() {
    let (_folder, input, output) = files();
    let requests: Vec<Value> = (0..60)
        .map(|i| {
            let mut request = completion(&format!("r{i:02}"), &format!("prompt {i}"));
            request["body"]["max_tokens"] = 100.into();
            request["body"]["ignore_eos"] = true.into();
            request
        })
        .collect();
    fs::write(&input, lines(&requests)).unwrap();
    let few_at_a_time = ["-i", &input, "-o", &output, "--max-concurrency", "2"];
    let mut child = playhouse(&[SMALL, &few_at_a_time].concat()).spawn();
    let limit = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(&output).is_ok_and(|text| text.lines().count() >= 2) {
        assert!(Instant::now() < limit, "no two answers in two minutes");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
        #[allow(clippy::disallowed_methods, reason = "no executor is waited on")]
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let done = fs::read_to_string(&output).unwrap();
    let count = answers(&done).len();
    assert!((2..60).contains(&count), "{count}");
    assert_eq!(run_batch(&input, &output).succeeds(), "");
    let all = fs::read_to_string(&output).unwrap();
    assert!(all.starts_with(&done));
    let names: Vec<Value> =
        answers(&all).iter().map(|answer| answer["custom_id"].clone()).collect();
    assert_eq!(names, requests.iter().map(|r| r["custom_id"].clone()).collect::<Vec<_>>());
}

#[test]
fn a_model_that_pools_answers_the_routes_of_its_work() {
    let (_folder, input, output) = files();
    let request = |custom_id: &str, url: &str, body: Value| json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body});
    let requests = [
        request("a", "/v1/embeddings", json!({"input": ["a", "b"]})),
        request("b", "/score", json!({"text_1": "a", "text_2": "a"})),
        request("c", "/v1/rerank", json!({"query": "a", "documents": ["b", "a"]})),
        chat("d"),
        request("e", "/v1/embeddings", json!({"input": ["a b", " c"], "late_chunking": true})),
    ];
    fs::write(&input, lines(&requests)).unwrap();
    let by_mean = r#"{"pooling_type": "MEAN"}"#;
    let pooling = ["--runner", "pooling", "--pooler-config", by_mean, "-i", &input, "-o", &output];
    playhouse(&[SMALL, &pooling[..]].concat()).fails_with(1);
    let found = answers(&fs::read_to_string(&output).unwrap());
    let body = |index: usize| &found[index]["response"]["body"];
    assert_eq!(body(0)["data"].as_array().unwrap().len(), 2);
    assert!((body(1)["data"][0]["score"].as_f64().unwrap() - 1.0).abs() < 1e-3);
    assert_eq!(body(2)["results"][0]["index"], 1);
    assert_eq!(found[3]["error"]["code"], "NotImplementedError");
    assert_eq!(found[3]["error"]["message"], "The model does not support Chat Completions API");
    assert_eq!(body(4)["data"].as_array().unwrap().len(), 2);
}
