//! Scripts in Python that judge a server or its outputs by what others wrote: the official clients,
//! `jsonschema`. `PLAYHOUSE_TEST_PYTHON` names a Python that has them; where there is none, the
//! tests say so and pass.
#![allow(clippy::panic, clippy::print_stdout, reason = "part of a test")]

use std::process::Command;

/// What a script exits with where its package is not installed.
const NO_PACKAGE: i32 = 3;

/// Runs `tests/SCRIPT`, and fails if it does. Gives what it says, or nothing where it could not run.
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
