//! Tells the program the commit that it is built from, and the folder of its source.
//!
//! `BUILD_COMMIT` names the commit. Otherwise a release build asks git. A development build does
//! not: it would be built anew after each commit.
//!
//! `BUILD_SOURCE_TREE` is the name of the folder in the program, for builds that must be equal
//! wherever they are made. Otherwise it is the folder's path.
//!
//! The names do not begin with `PLAYHOUSE_`: `cargo run` and `cargo test` hand such variables to
//! the program, which refuses settings that it does not know.

#![allow(clippy::print_stdout, reason = "cargo reads the output")]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let given = std::env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(of_checkout).flatten());
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rerun-if-env-changed=BUILD_SOURCE_TREE");
    let given = std::env::var("BUILD_SOURCE_TREE").ok().filter(|folder| !folder.is_empty());
    let folder = given.or_else(|| std::env::var("CARGO_MANIFEST_DIR").ok()).unwrap_or_default();
    println!("cargo::rustc-env=SOURCE_TREE={folder}");
}

/// Returns the commit of the checkout, if it is one and there is git.
fn of_checkout() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    // The log of HEAD grows with each commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
