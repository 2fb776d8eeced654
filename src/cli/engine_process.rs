//! `playhouse engine-process`: the process that has the model. `playhouse serve` starts it.

use std::process::ExitCode;

use super::{CliError, engine, logging};
use crate::engine::{ChildError, run_child};

impl From<ChildError> for CliError {
    fn from(error: ChildError) -> Self {
        match error {
            ChildError::NoLink(_) => Self::Usage(error.to_string()),
            ChildError::Config(error) => error.into(),
            ChildError::GaveUp => Self::GaveUp,
            ChildError::Panicked => Self::Panicked(error.to_string()),
            ChildError::Broken(_) => Self::Link(error.to_string()),
        }
    }
}

/// Runs the engine process of a front.
pub(super) fn main() -> ExitCode {
    let _flush = logging::FlushAtEnd;
    let run = engine::run(async {
        run_child(|config| {
            // A process that cannot log still serves.
            let _ = logging::detach();
            let _ = logging::install(&config.log);
        })
        .await
        .map_err(CliError::from)
    });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
