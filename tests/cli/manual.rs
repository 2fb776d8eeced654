//! Shell completions and manual pages.

use std::process::Command;

use crate::process::playhouse;

#[test]
fn bash_completes_commands_and_flags() {
    let folder = tempfile::TempDir::new().unwrap();
    let script = folder.path().join("playhouse.bash");
    std::fs::write(&script, playhouse(&["completions", "bash"]).succeeds()).unwrap();
    let complete = |words: &str, last: usize| {
        let typing = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _playhouse playhouse \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &typing]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("playhouse ser", 1), "serve");
    assert_eq!(complete("playhouse bench thr", 2), "throughput");
    assert!(complete("playhouse serve --max-model", 2).contains("--max-model-len"));
    assert_eq!(complete("playhouse serve --dtype b", 3), "bfloat16");
    assert_eq!(complete("playhouse serve --kv-cache-dtype int", 3), "int8_per_token_head");
    assert!(complete("playhouse serve --tool-call-parser q", 3).contains("qwen3_coder"));
}

/// A value may have another spelling than the one that shells complete.
#[test]
fn completed_words_are_no_limit() {
    let printed = playhouse(&["config", "--dtype", "float", "--device", "cpu"]).succeeds();
    assert!(printed.contains("dtype = \"float32\""), "{printed}");
    let refused = playhouse(&["config", "--dtype", "int3"]).fails_with(2);
    assert!(refused.contains("expected auto, float32"), "{refused}");
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = playhouse(&["completions", shell]).succeeds();
        assert!(script.contains("run-batch"), "{shell}");
        let completes_words = ["bash", "zsh", "fish"].contains(&shell);
        let words = ["bfloat16", "wgpu", "deepseek_r1", "int8_per_token_head", "priority"];
        let is_there = |word: &&str| script.contains(*word);
        assert!(!completes_words || words.iter().all(is_there), "{shell}");
    }
    assert!(playhouse(&["completions", "sh"]).fails_with(2).contains("possible values"));
}

#[test]
fn the_manual_is_printed_and_installed() {
    let page = playhouse(&["man", "bench", "serve"]).succeeds();
    assert!(page.contains(".TH playhouse-bench-serve 1"), "{page}");
    assert!(playhouse(&["man"]).succeeds().contains("playhouse\\-serve(1)"));
    assert!(playhouse(&["man", "sevre"]).fails_with(2).contains("no command `sevre`"));
    let folder = tempfile::TempDir::new().unwrap();
    let pages = folder.path().join("share/man/man1");
    playhouse(&["man", "--dir", pages.to_str().unwrap()]).succeeds();
    let installed = std::fs::read_to_string(pages.join("playhouse-bench-serve.1")).unwrap();
    assert_eq!(installed, page);
    assert!(pages.join("playhouse.1").exists() && pages.join("playhouse-chat.1").exists());
}

/// Wrong settings must not keep a shell from starting.
#[test]
fn completions_and_manual_need_no_settings() {
    playhouse(&["completions", "zsh"]).env("PLAYHOUSE_PROT", "1").succeeds();
}
