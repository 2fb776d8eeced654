//! Results on standard output in their formats, and messages on standard error.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Read, Write},
};

use clap::ValueEnum;

use super::{CliError, logging::Stderr};

/// The formats of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Writes `text` to standard output and shows it at once.
pub(crate) fn show(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(CliError::io("cannot write to standard output"))
}

/// Writes a JSON value on a line of its own.
pub(crate) fn show_json(value: &serde_json::Value) -> Result<(), CliError> {
    show(&format!("{value}\n"))
}

/// Writes a line to standard error. A failure cannot be reported, so it is ignored.
pub(crate) fn tell(text: impl Display) {
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

/// Reads the piped input.
pub(crate) fn read_stdin(wanted: &str) -> Result<String, CliError> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        return Err(CliError::Usage(format!("no {wanted}: give one, or pipe it in")));
    }
    let mut text = String::new();
    let read = stdin.read_to_string(&mut text);
    read.map_err(CliError::io(format!("cannot read the {wanted} from standard input")))?;
    Ok(text)
}
