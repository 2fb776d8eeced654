//! Python scripts that check a server or its outputs with independent software: the official
//! clients and `jsonschema`. `PLAYHOUSE_TEST_PYTHON` names a Python that has these packages.
//! Without one, the tests print a note and pass.
#![allow(clippy::panic, clippy::print_stdout, reason = "part of a test")]

use std::process::Command;

/// Exit code of a script whose package is not installed.
const NO_PACKAGE: i32 = 3;

/// Runs `tests/SCRIPT`, and panics if it fails. Returns its output, or `None` if it could not run.
pub(crate) async fn run(script: &str, args: &[&str]) -> Option<String> {
    let python = std::env::var("PLAYHOUSE_TEST_PYTHON").unwrap_or("python3".to_owned());
    let mut command = Command::new(&python);
    command.arg(format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR"))).args(args);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {python} does not run: {error}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {
            println!("{said}");
            Some(said)
        }
        Some(NO_PACKAGE) => {
            println!("skipped: {said}");
            None
        }
        code => panic!("the script ended with {code:?}:\n{said}"),
    }
}
