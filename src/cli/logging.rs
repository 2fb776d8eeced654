//! The log, on standard error.

use std::io;

use super::{CliError, log_level, style::Style};
use crate::config::LogSettings;

/// Lets everything that is logged from now on reach standard error.
pub(crate) fn install(settings: &LogSettings) -> Result<(), CliError> {
    let filter = log_level::parse(&settings.level)?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Where a line cannot be written, what tells of that cannot be either: it would panic.
        .log_internal_errors(false)
        .with_ansi(Style::of(&io::stderr()).is_on());
    // A second installation in one process (an embedding test) keeps the first.
    let _ = subscriber.try_init();
    Ok(())
}
