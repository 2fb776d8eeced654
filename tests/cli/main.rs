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
    let version = format!("playhouse {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(playhouse(&["-V"]).succeeds(), version);
    let long = playhouse(&["--version"]).succeeds();
    assert!(long.starts_with(&version), "{long}");
    for fact in ["commit: ", "features: demo-model", "instruction set: "] {
        assert!(long.contains(&format!("\n{fact}")), "{long}");
    }
}

#[test]
fn short_help_has_the_flags_that_most_users_need() {
    let (short, long) = (playhouse(&["serve", "-h"]), playhouse(&["serve", "--help"]));
    let (short, long) = (short.succeeds(), long.succeeds());
    assert!(short.contains("--port") && short.contains("--device"), "{short}");
    assert!(!short.contains("--watermark") && long.contains("--watermark"), "{short}");
    assert!(short.lines().count() * 3 < long.lines().count(), "{short}");
}

#[test]
fn flags_of_vllm_have_an_answer() {
    let config = ["config", "--trust-remote-code", "--swap-space", "4", "--max-num-seqs", "64"];
    let (code, stdout, stderr) = playhouse(&config).finish();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("max_num_seqs"), "{stdout}");
    assert!(stderr.contains("note: --trust-remote-code changes nothing here"), "{stderr}");
    let config = ["config", "--max_num_seqs", "7", "--attention-backend", "X", "--disable-lora"];
    let (code, stdout, stderr) = playhouse(&config).finish();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("max_num_seqs = 7"), "{stdout}");
    assert!(stderr.contains("note: --attention-backend changes nothing here"), "{stderr}");
    // As in vLLM, the last value of a flag counts.
    let stdout = playhouse(&["config", "--port", "1", "--port=7", "--api-key", "a"]).succeeds();
    assert!(stdout.contains("port = 7"), "{stdout}");
    let serve = playhouse(&["serve", "--port", "99999"]).env("VLLM_API_KEY", "secret");
    let stderr = serve.env("VLLM_LOGGING_LEVEL", "DEBUG").env("VLLM_USE_V1", "1").fails_with(2);
    assert!(stderr.contains("note: VLLM_API_KEY changes nothing here"), "{stderr}");
    assert!(stderr.contains("note: VLLM_LOGGING_LEVEL changes nothing here: --log-l"), "{stderr}");
    assert!(stderr.contains("note: variables that are vLLM's alone: VLLM_USE_V1"), "{stderr}");
    assert!(!stderr.contains("secret"), "{stderr}");
    let stderr = playhouse(&["serve", "--tensor-parallel-size", "2"]).fails_with(2);
    assert!(stderr.contains("--device"), "{stderr}");
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
