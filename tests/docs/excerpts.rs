//! The Rust and TOML in the documents works.

use std::{fs, path::Path};

use crate::{Document, ROOT, blocks::blocks, documents, sandbox::Sandbox};

/// Returns the lines of a text without indentation. Empty lines and comments are left out.
fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns whether all lines of `excerpt` stand in `source`, one after the other.
fn is_in(excerpt: &[&str], source: &[&str]) -> bool {
    source.windows(excerpt.len().max(1)).any(|window| window == excerpt)
}

/// Other tests build and run the examples; all other excerpts come from the program.
#[test]
fn rust_stands_in_a_file_that_is_compiled() {
    let mut all = Vec::new();
    for folder in ["examples", "src", "actors/src", "kernels/src"] {
        sources(&Path::new(ROOT).join(folder), &mut all);
    }
    assert!(all.len() > 100, "the sources were not found");
    let all: Vec<_> = all.iter().map(|source| lines(source)).collect();
    let (mut missing, mut count) = (Vec::new(), 0);
    for Document { path, text } in documents() {
        for block in blocks(&text).iter().filter(|block| block.language == "rust") {
            let excerpt = lines(&block.text);
            count += 1;
            if excerpt.len() < 2 || !all.iter().any(|source| is_in(&excerpt, source)) {
                missing.push(format!("{path}:{}: in no source file:\n{}", block.line, block.text));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
    assert!(count > 1, "there were no excerpts");
}

/// The README shows a program that compiles as it is: all of `examples/embed.rs`.
#[test]
fn the_readme_has_a_whole_program() {
    let example = fs::read_to_string(Path::new(ROOT).join("examples/embed.rs")).unwrap();
    let mut whole = lines(&example);
    whole.retain(|line| !line.starts_with("#!["));
    for document in documents() {
        if ["README.md", "docs/src/in-rust.md"].contains(&document.path.as_str()) {
            let found = blocks(&document.text);
            let first = found.iter().find(|block| block.language == "rust").unwrap();
            assert_eq!(lines(&first.text), whole, "{}", document.path);
        }
    }
}

/// Returns whether a block is a part of a program's `Cargo.toml`.
fn is_manifest(block: &str) -> bool {
    block.starts_with("[dependencies]")
}

/// A manifest in the documents names features that exist, and profiles that are the workspace's.
#[test]
fn manifests_are_those_of_the_workspace() {
    let read = |text: &str| text.parse::<toml::Table>().unwrap();
    let ours = read(&fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap());
    let mut count = 0;
    for Document { path, text } in documents() {
        for block in blocks(&text).iter().filter(|block| is_manifest(&block.text)) {
            let manifest = read(&block.text);
            let features = manifest["dependencies"]["playhouse"]["features"].as_array().unwrap();
            for feature in features.iter().filter_map(toml::Value::as_str) {
                assert!(ours["features"].get(feature).is_some(), "{path}: {feature}");
            }
            for (package, profile) in manifest["profile"]["dev"]["package"].as_table().unwrap() {
                let ours = ours["profile"]["dev"]["package"].get(package);
                assert_eq!(ours, Some(profile), "{path}: {package}");
            }
            count += 1;
        }
    }
    assert!(count > 0, "there were no manifests");
}

#[test]
fn settings_are_taken() {
    let sandbox = Sandbox::new();
    for Document { path, text } in documents() {
        let blocks = blocks(&text);
        let settings =
            blocks.iter().filter(|block| block.language == "toml" && !is_manifest(&block.text));
        for block in settings {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), &block.text).unwrap();
            let config = format!("config --config {}", file.path().display());
            let printed = sandbox.playhouse(&config);
            assert!(printed.contains("[engine]"), "{path}:{}", block.line);
        }
    }
}

#[test]
fn every_block_says_what_it_is() {
    for Document { path, text } in documents() {
        for block in blocks(&text) {
            let is_known = ["sh", "rust", "toml", "text", "json", "ini", "yaml"];
            // Drawings have no language.
            let is_drawing = block.language.is_empty() && path == "ARCHITECTURE.md";
            let language = block.language.as_str();
            assert!(is_known.contains(&language) || is_drawing, "{path}:{}", block.line);
        }
    }
}

#[test]
fn an_excerpt_is_found_whatever_its_indentation() {
    let source = lines("fn f() {\n    // why\n    one();\n    two();\n}\n");
    assert!(is_in(&lines("one();\ntwo();\n"), &source));
    assert!(!is_in(&lines("two();\none();\n"), &source));
}
