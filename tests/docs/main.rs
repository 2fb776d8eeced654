//! The documents are true: every command runs, every excerpt is in the sources, every link has a
//! target, and every list is complete.
//!
//! `docs/src/writing.md` explains how a block is tested.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what is run is told, and what is skipped")]

mod blocks;
#[path = "../building/mod.rs"]
mod building;
mod commands;
mod excerpts;
mod links;
mod reference;
mod sandbox;

use std::{fs, path::Path};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A Markdown file.
pub(crate) struct Document {
    /// The path, relative to the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns README, ARCHITECTURE and the book.
pub(crate) fn documents() -> Vec<Document> {
    let mut paths = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    let chapters = fs::read_dir(Path::new(ROOT).join("docs/src")).unwrap();
    paths.extend(chapters.map(|entry| {
        let name = entry.unwrap().file_name();
        format!("docs/src/{}", name.to_str().unwrap())
    }));
    paths.retain(|path| path.ends_with(".md"));
    paths.sort();
    let document = |path: String| {
        let text = fs::read_to_string(Path::new(ROOT).join(&path)).unwrap();
        Document { path, text }
    };
    paths.into_iter().map(document).collect()
}

/// Returns the text of the book's file `path`.
pub(crate) fn chapter(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join("docs/src").join(path)).unwrap()
}
