//! `examples/own_model`: a program outside the workspace that uses only the public API.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use reqwest::Client;
use serde_json::{Value, json};

/// Builds the program with the workspace's versions and profiles, and returns its path. It is built
/// beside the tests' own programs, where most of its dependencies are built already.
fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("examples/own_model");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_playhouse")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // Cargo's variables describe the test's package. They must not reach this package's build
    // scripts.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_") && name != "CARGO_HOME" {
            cargo.env_remove(&name);
        }
    }
    cargo.args(["build", "--quiet", "--offline", "--config", "../../Cargo.toml", "--target-dir"]);
    cargo.arg(programs.parent().unwrap()).current_dir(folder);
    if programs.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    programs.join("own_model")
}

/// A program that is killed when the test ends, also if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "its dependencies are built again, with other features: minutes; .ci/long runs it"]
async fn a_program_serves_its_own_model_with_its_own_parts() {
    let program = build();
    let output = Command::new(&program).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let expected = "\
in Rust:    hmm hmm hmm so look paris .
by a rule:  hmm so look oslo .
over HTTP:  thinks \"hmm hmm\", calls \"weather\"(\"{\\\"city\\\":\\\"paris\\\"}\")
refused:    400 \"vllm_xargs must be rules among at_most, got at_least\"
";
    assert_eq!(shown, expected);

    let mut serving = Command::new(&program);
    let mut serving = Running(serving.args(["serve", "0"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("serving on ").unwrap();
    let body = json!({
        "messages": [{"role": "user", "content": "what is the weather ?"}],
        "tools": [{"type": "function", "function": {"name": "weather"}}],
        "temperature": 0,
        "vllm_xargs": {"at_most": {"paris": 0}},
    });
    let answer = Client::new().post(format!("{url}/v1/chat/completions")).json(&body).send();
    let answer: Value = answer.await.unwrap().json().await.unwrap();
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["arguments"], "{\"city\":\"oslo\"}", "{answer}");
}
