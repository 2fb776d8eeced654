//! The examples as programs. If all tests run, they are built already. Otherwise they are built
//! now.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Beginnings of the variables that cargo sets for a test about its package. Some build scripts
/// watch them. If the variables changed, cargo would build the packages of these scripts again.
const OF_THE_TEST: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

/// Returns the folder that has all examples, beside the program.
pub(crate) fn examples() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_playhouse")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in variables {
        let text = name.to_string_lossy();
        if OF_THE_TEST.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo.args(["build", "--quiet", "--workspace", "--examples", "--target-dir"]);
    cargo.arg(folder.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join("examples")
}
