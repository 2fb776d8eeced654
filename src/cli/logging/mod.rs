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
use crate::config::{LogFormat, LogSettings};

/// Longest wait of a process that ends for its last lines to be written.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The lines of [`detach`].
static DETACHED: OnceLock<Lines> = OnceLock::new();

/// Moves writes to standard error, including those of panics, to a thread of their own. A slow or
/// stopped reader then costs log lines and blocks no other thread.
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
        // If a line cannot be written, a line about that cannot be written either: it would panic.
        .log_internal_errors(false);
    // A second installation in one process (an embedding test) keeps the first.
    let _ = match settings.format {
        LogFormat::Text => subscriber.with_ansi(Style::of(&io::stderr()).is_on()).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_ansi(false).try_init(),
    };
    Ok(())
}

/// Returns the number of log lines that standard error did not take.
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

/// Standard error, the way all parts of the command line write to it.
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
