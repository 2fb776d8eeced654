//! The `playhouse` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    playhouse::cli::main()
}
