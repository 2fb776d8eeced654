//! Holds the language: comments and documents are plain English.
//!
//! A sentence has at most [`WORDS_MAX`] words; code counts as one. Each phrase of
//! [`rules::FORBIDDEN`] has a plainer replacement. Lines of comments and documents keep to
//! [`COLUMNS_MAX`] columns.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod markdown;
mod rules;
mod sentences;
mod source;

use std::{fs, path::Path};

use self::{
    rules::{FORBIDDEN, HELD, is_excepted},
    sentences::{Paragraph, sentences, words},
};

const WORDS_MAX: usize = 25;
const COLUMNS_MAX: usize = 100;

/// Returns what is wrong with `text`, one line a fault: `path:line: fault`.
fn faults(path: &str, text: &str) -> Vec<String> {
    let paragraphs = match path.rsplit('.').next() {
        Some("md") => markdown::paragraphs(text),
        Some("rs") => source::paragraphs(text, &["//!", "///", "//"]),
        // Settings and scripts. The scripts in `.ci` have no extension.
        _ => source::paragraphs(text, &["#"]),
    };
    paragraphs.iter().flat_map(|paragraph| faults_of(path, paragraph)).collect()
}

fn faults_of(path: &str, paragraph: &Paragraph) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |line: usize, fault: String| {
        if !is_excepted(path, &fault) {
            found.push(format!("{path}:{line}: {fault}"));
        }
    };
    for (line, columns) in paragraph.wide_lines(COLUMNS_MAX) {
        report(line, format!("{columns} columns; at most {COLUMNS_MAX}"));
    }
    for (line, sentence) in sentences(paragraph) {
        let count = words(&sentence).len();
        if count > WORDS_MAX {
            report(line, format!("{count} words; at most {WORDS_MAX}: {sentence}"));
        }
        for (phrase, instead) in FORBIDDEN {
            if contains(&sentence, phrase) {
                report(line, format!("'{phrase}': {instead}: {sentence}"));
            }
        }
    }
    found
}

/// Whether the words of `phrase` stand in `sentence`, one after the other. A `^` before the first
/// word demands the beginning of the sentence, and a sentence that is no question.
fn contains(sentence: &str, phrase: &str) -> bool {
    let (phrase, at_start) = match phrase.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (phrase, false),
    };
    let wanted: Vec<String> = words(phrase).iter().map(|word| word.to_lowercase()).collect();
    let given: Vec<String> = words(sentence).iter().map(|word| word.to_lowercase()).collect();
    let mut windows = given.windows(wanted.len());
    match at_start {
        true => windows.next().is_some_and(|first| first == wanted) && !sentence.ends_with('?'),
        false => windows.any(|window| window == wanted),
    }
}

/// Returns the paths of all files under `folder`, or of the file `folder` itself, relative to the
/// workspace.
fn files(folder: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut open, mut found) = (vec![root.join(folder)], Vec::new());
    while let Some(path) = open.pop() {
        // Packages and builds are not ours.
        if path.ends_with("node_modules") || path.ends_with("target") {
            continue;
        }
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let relative = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            found.push(relative);
        }
    }
    let is_prose = |path: &String| {
        let kind = path.rsplit('.').next().unwrap_or_default();
        ["rs", "md", "toml", "sh"].contains(&kind) || path.starts_with(".ci/")
    };
    found.retain(is_prose);
    found.sort();
    found
}

#[test]
fn comments_and_documents_are_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for place in HELD {
        let files = files(place);
        assert!(!files.is_empty(), "there is nothing at {place}");
        for path in files {
            found.extend(faults(&path, &fs::read_to_string(root.join(&path)).unwrap()));
        }
    }
    assert!(found.is_empty(), "\n{}\n{} faults", found.join("\n"), found.len());
}

#[test]
fn planted_faults_are_found() {
    let long = format!("/// {}.", "a ".repeat(WORDS_MAX + 1).trim());
    let wide = format!("// {}", "x".repeat(COLUMNS_MAX));
    let abbreviated = format!("/// {} e.g. a block.", "a ".repeat(WORDS_MAX - 2).trim());
    let planted = [
        ("a.rs", "/// Whoever comes first is served.\nfn f() {}"),
        ("a.rs", "// The block is free. Nobody\n// has it."),
        ("a.rs", "//! It is not there any\n//! more."),
        ("a.rs", long.as_str()),
        ("a.rs", wide.as_str()),
        ("a.rs", abbreviated.as_str()),
        ("a.rs", "/// Returns one block: what was cached."),
        ("a.rs", "// (The step is dropped.) Who ends early is computed again."),
        ("a.md", "# Title\n\nWho ends early is computed once more."),
        ("a.md", "- A list.\n- The result is computed in vain."),
        ("a.toml", "# A request, such as this one.\nkey = 1"),
        ("a.toml", "[lib]\n# Nobody\n# needs it.\nbench = false"),
        ("a.sh", "#!/usr/bin/env bash\n# Whoever comes first is served.\ntrue"),
        (".ci/a", "set -eu\nf() {\n    # The test fails in\n    # vain.\n    true\n}"),
    ];
    for (path, text) in planted {
        assert_eq!(faults(path, text).len(), 1, "{text}: {:?}", faults(path, text));
    }
}

#[test]
fn plain_text_is_left_alone() {
    let half = "a ".repeat(WORDS_MAX / 2 + 1);
    let half = half.trim();
    let quoted = format!("// The text is \"{half}.\" And {half}.");
    let plain = [
        ("a.rs", "/// Returns the block's length, in tokens.\nfn f() { let s = \"whoever\"; }"),
        ("a.rs", quoted.as_str()),
        ("a.rs", "/// Asks the worker: what is computed now?"),
        ("a.rs", "/// Names `nobody` and `whoever` as code.\nfn f() {}"),
        ("a.md", "```text\nwhoever, nobody, in vain\n```\n\nA paragraph."),
        ("a.md", "| a | b |\n|---|---|\n| one | two |"),
        ("a.md", "See [the page](https://example.com/whoever)."),
        ("a.toml", "whoever = \"nobody\"\n# A request ends once."),
        ("a.sh", "#!/usr/bin/whoever\n# The test ends.\necho nobody"),
        (".ci/a", "# Runs all tests.\necho \"nobody, in vain\""),
    ];
    for (path, text) in plain {
        assert!(faults(path, text).is_empty(), "{text}: {:?}", faults(path, text));
    }
}
