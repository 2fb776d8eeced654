//! The log, on standard error.

mod lines;
mod panics;

use std::{
    io::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use self::lines::Lines;
use super::{CliError, log_level, style::Style};
use crate::config::LogSettings;

/// How long a process that ends waits for its last lines to be taken.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// What [`detach`] has begun.
static DETACHED: OnceLock<Lines> = OnceLock::new();

/// Writes to standard error happen on a thread of their own from now on, those of panics included:
/// a reader that is too slow, or reads nothing, costs log lines and holds up no other thread.
pub(crate) fn detach() -> Result<(), CliError> {
    let lines = Lines::spawn(io::stderr(), |dropped| {
        tracing::warn!(dropped, "log lines were dropped: standard error did not take them in time");
    });
    let lines = lines.map_err(CliError::io("cannot start the log's thread"))?;
    if DETACHED.set(lines).is_ok() {
        panics::tell();
    }
    Ok(())
}

/// Lets everything that is logged from now on reach standard error.
pub(crate) fn install(settings: &LogSettings) -> Result<(), CliError> {
    let filter = log_level::parse(&settings.level)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        // Where a line cannot be written, what tells of that cannot be either: it would panic.
        .log_internal_errors(false)
        .with_ansi(Style::of(&io::stderr()).is_on());
    // A second installation in one process (an embedding test) keeps the first.
    let _ = subscriber.try_init();
    Ok(())
}

/// Log lines that standard error did not take.
pub(crate) fn dropped_lines() -> u64 {
    DETACHED.get().map_or(0, Lines::dropped)
}

/// Waits until all lines are written, for a second at most.
pub(crate) fn flush() {
    if let Some(lines) = DETACHED.get() {
        lines.flush(FLUSH_LIMIT);
    }
}

/// Calls [`flush`] when dropped, also by a panic.
pub(crate) struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        flush();
    }
}

/// Standard error, as every part of the command line writes to it.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match DETACHED.get() {
            Some(lines) => {
                lines.push(bytes);
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
