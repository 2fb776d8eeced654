//! Flags, exactly as typed.

mod sampling;
mod settings;
mod words;

use clap::Args;

pub(crate) use sampling::SamplingFlags;
pub(crate) use settings::{EngineFlags, HubFlags, LogFlags, ServerFlags};

use crate::config::layer::Entry;

/// The flags of all settings except the log's level, which every command has.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AllFlags {
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    server: ServerFlags,
}

impl AllFlags {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        [self.engine.entries(), self.server.entries()].concat()
    }
}
