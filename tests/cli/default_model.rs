//! The model that runs when no model is named.

use std::process::Command;

use crate::process::playhouse;

const GREEDY: &[&str] = &["--temperature", "0", "--max-tokens", "8", "--ignore-eos", "Hello"];
const IN_SOURCE_TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");

fn generate(flags: &[&str]) -> String {
    playhouse(&[&["generate"], flags, GREEDY].concat()).succeeds()
}

#[test]
fn the_default_is_the_demo_model() {
    let named = generate(&["--model", IN_SOURCE_TREE]);
    assert_eq!(generate(&[]), named);
    assert_eq!(generate(&["--tokenizer", IN_SOURCE_TREE]), named);
    let settings = playhouse(&["config", "--output", "json"]).succeeds();
    let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
    let built_in = settings["engine"]["model"]["value"].as_str().unwrap();
    assert_eq!(generate(&["--model", built_in]), named, "what `config` shows can be given back");
}

/// The case after `cp target/release/playhouse ~/bin`, on a machine without home or source tree.
#[test]
fn a_copied_program_has_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("playhouse");
    std::fs::copy(env!("CARGO_BIN_EXE_playhouse"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args([&["generate"], GREEDY].concat()).current_dir(&folder).env_clear();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), generate(&[]));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "it leaves nothing behind");
}

#[test]
fn its_packed_weights_can_be_kept() {
    let cache = tempfile::TempDir::new().unwrap();
    let flags = ["--weights-cache", cache.path().to_str().unwrap()];
    let packed = generate(&flags);
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    let log = ["--log-level", "info"];
    let run = playhouse(&[&["generate"], &flags[..], &log, GREEDY].concat());
    let (code, stdout, stderr) = run.finish();
    assert_eq!((code, stdout), (Some(0), packed));
    assert!(stderr.contains("weights come packed from the cache"), "{stderr}");
}
