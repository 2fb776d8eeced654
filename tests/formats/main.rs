//! Ready-made quantized checkpoints compared with other implementations, whose results
//! `make_fixtures.py` recorded; and broken files.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken;
mod classifiers;
mod command_line;
mod converted;
mod families;
mod float8;
mod ignored;
mod logits;
mod matrices;
mod metadata;
mod minimax;
#[path = "../fidelity/runner.rs"]
#[allow(dead_code)]
mod runner;
mod tokenizers;
mod unused;

use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/fixtures").join(name)
}
