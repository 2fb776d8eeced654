//! Rules about every file.

use std::path::Path;

use super::source::{self, Source, names};

const MAX_LINES: usize = 500;

/// Returns the faults of `source`.
fn untidiness(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let lines = source.text.lines().count();
    if lines > MAX_LINES {
        found.push(format!(
            "{}: {lines} lines; over {MAX_LINES} it is asking to be two",
            source.path
        ));
    }
    if !source.text.starts_with("//!") {
        found.push(format!("{}: does not begin by saying what it is (//! …)", source.path));
    }
    let unfinished = ["todo", "unimplemented", "dbg"];
    for (line, name) in names(&source.text) {
        let is_macro = || {
            let text = source.text.lines().nth(line - 1).unwrap_or_default();
            text.contains(&format!("{name}!"))
        };
        if unfinished.contains(&name.as_str()) && is_macro() {
            found.push(format!("{}:{line}: {name}! has no place here", source.path));
        }
    }
    found
}

#[test]
fn every_file_is_tidy() {
    let found: Vec<_> = source::all().iter().flat_map(untidiness).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn planted_untidiness_is_found() {
    let planted = [
        "fn f() {}".to_owned(),
        "//! A file.\nfn f() { todo!() }".to_owned(),
        "//! A file.\nfn f(x: u8) -> u8 { dbg!(x) }".to_owned(),
        format!("//! A file.\n{}", "\n".repeat(MAX_LINES)),
    ];
    for text in planted {
        let source = Source { path: "src/new.rs".to_owned(), text };
        assert_eq!(untidiness(&source).len(), 1, "{}", source.text);
    }
    let text = "//! Says todo! in a comment.\nfn todo() {}".to_owned();
    assert!(untidiness(&Source { path: "src/new.rs".to_owned(), text }).is_empty());
}

#[test]
fn the_changelog_has_a_place_for_what_comes_next() {
    let changelog = include_str!("../../CHANGELOG.md");
    assert!(changelog.contains("## [Unreleased]"));
}

/// Returns the names of tests and files that the chapter on invariants has in back quotes.
fn named_in_invariants(chapter: &str) -> Vec<&str> {
    let (_, tables) = chapter.split_once("\n## ").unwrap();
    let quoted = tables.split('`').skip(1).step_by(2);
    quoted
        .flat_map(|text| text.split(['{', '}', ',', ' ']))
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn the_invariants_name_tests_that_exist() {
    let chapter = include_str!("../../docs/src/invariants.md");
    let (sources, root) = (source::all(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let is_test = |name: &str| {
        let test = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
        sources.iter().any(|source| source.text.contains(&test))
    };
    let mut tests = 0;
    for name in named_in_invariants(chapter) {
        if name.contains('/') {
            assert!(root.join(name).exists(), "{name} does not exist");
        } else if name.contains('_') && !name.ends_with("::") {
            let is_folder = name.ends_with("tests") || name.contains("sha256");
            assert!(is_folder || is_test(name), "there is no test {name}");
            tests += 1;
        }
    }
    assert!(tests > 10, "the invariants were not found");
}
