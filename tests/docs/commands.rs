//! Runs every command of every document.

use std::{collections::BTreeSet, process::Command};

use crate::{Document, blocks::blocks, blocks::quoted, building, documents, sandbox::Sandbox};

/// Runs the blocks of a document in their order. Returns a text for each block that failed.
fn run(document: &Document) -> Vec<String> {
    let mut sandbox = Sandbox::new();
    let mut failed = Vec::new();
    for block in blocks(&document.text).iter().filter(|block| block.language == "sh") {
        eprintln!("{}:{}", document.path, block.line);
        let outcome = match block.needs {
            Some(_) => sandbox.check(block),
            None => sandbox.run(block),
        };
        if outcome.code != Some(0) {
            let (path, line, text) = (&document.path, block.line, &block.text);
            let code = outcome.code;
            failed.push(format!("{path}:{line}: exit {code:?}\n{text}{}", outcome.output));
        }
    }
    failed
}

/// Returns whether there is curl. Without it, the tests of the documents print a note and pass.
fn has_curl() -> bool {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    if !has_curl {
        eprintln!("skipped: there is no curl");
    }
    has_curl
}

#[test]
fn the_readmes_commands_run() {
    if !has_curl() {
        return;
    }
    building::examples();
    let readme = documents().into_iter().find(|document| document.path == "README.md").unwrap();
    let failed = run(&readme);
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

#[test]
fn the_books_commands_run() {
    if !has_curl() {
        return;
    }
    building::examples();
    let others = documents().into_iter().filter(|document| document.path != "README.md");
    let failed: Vec<_> = others.flat_map(|document| run(&document)).collect();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// Flags of other programs that the documents name.
const OTHERS: &[&str] = &[
    "--release",
    "--features",
    "--no-default-features",
    "--path",
    "--example",
    "--test",
    "--workspace",
    "--target",
    "--binary",
    "--strip-components",
    "--cpunodebind",
    "--membind",
    "--interleave",
    // llama.cpp's converter.
    "--sentence-transformers-dense-modules",
    // Spellings of vLLM's, which are accepted.
    "--disable-prefix-caching",
    "--spec-method",
    "--attention-backend",
];

#[test]
fn flags_in_prose_exist() {
    let sandbox = Sandbox::new();
    let mut known: BTreeSet<String> = OTHERS.iter().map(|flag| (*flag).to_owned()).collect();
    for command in [
        "serve",
        "generate",
        "chat",
        "embed",
        "classify",
        "score",
        "rerank",
        "run-batch",
        "tokenize",
        "collect-env",
        "models",
        "config",
        "profile",
        "replay",
        "eval perplexity",
        "bench serve",
        "bench throughput",
        "bench latency",
        "bench pooling",
        "bench startup",
        "bench kernels",
        "bench chaos",
        "bench overload",
        "completions",
        "man",
    ] {
        let help = sandbox.playhouse(&format!("{command} --help"));
        let words = help.split(|c: char| !(c.is_alphanumeric() || c == '-'));
        known.extend(words.filter(|word| word.starts_with("--")).map(str::to_owned));
    }
    let mut unknown = Vec::new();
    for Document { path, text } in documents() {
        for quoted in quoted(&text) {
            let words = quoted.split(|c: char| !(c.is_alphanumeric() || c == '-'));
            let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
            let missing = flags.filter(|flag| !known.contains(*flag));
            unknown.extend(missing.map(|flag| format!("{path}: {flag}")));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
