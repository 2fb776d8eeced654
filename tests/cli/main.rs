//! The program as a user runs it: its output and its exit codes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod chat;
mod config;
mod default_model;
mod device;
mod eval;
mod file_limit;
mod files;
mod generate;
mod hub;
mod log_pipe;
mod manual;
mod measure;
mod memory;
mod operations;
mod pooling;
mod process;
mod profile;
mod run_batch;
mod serve;
mod server;
mod sleeping;
mod terminal;
mod tokenize;

use process::playhouse;

#[test]
fn help_and_version_are_results() {
    let help = playhouse(&["--help"]).succeeds();
    assert!(help.contains("Exit codes:") && help.contains("playhouse serve"), "{help}");
    let version = playhouse(&["--version"]).succeeds();
    assert_eq!(version, format!("playhouse {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in
        [&["sevre"][..], &["serve", "--max-num-seq", "3"], &["generate", "--top-p", "x"]]
    {
        let stderr = playhouse(arguments).fails_with(2);
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

#[test]
fn a_missing_model_is_reported_in_one_line_with_advice() {
    let stderr = playhouse(&["generate", "-m", "/nowhere/model", "hello"]).fails_with(1);
    let lines: Vec<_> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: the engine did not start: no model at /nowhere/model"));
    assert!(lines[1].starts_with("help: give the folder of a Hugging Face model"), "{stderr}");
    assert_eq!(lines.len(), 2, "{stderr}");
}

#[test]
fn the_environment_is_collected() {
    let json = playhouse(&["collect-env", "--output", "json"]).succeeds();
    let facts: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(facts["playhouse"], env!("CARGO_PKG_VERSION"));
    assert!(facts["threads"].as_u64().unwrap() >= 1);
    let text = playhouse(&["collect-env"]).succeeds();
    assert!(text.contains("cpu_kernels"), "{text}");
}
