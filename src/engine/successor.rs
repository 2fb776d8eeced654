//! A second engine that takes the place of a running one, with another model.

use std::sync::Arc;

use playhouse_actors::system::SystemConfig;

#[cfg(unix)]
use super::process::{Beside, HowToStart};
use super::{Engine, JournalSharing, StartError, builder::Registries};
use crate::config::EngineConfig;
#[cfg(unix)]
use crate::config::LogSettings;

/// How an engine was started, so that another one starts in the same way.
#[derive(Debug)]
pub(super) enum HowStarted {
    /// The model is in this process. The registries are those of the embedding program.
    InThisProcess(Box<Registries>),
    /// The model is in processes of its own.
    #[cfg(unix)]
    InProcesses(HowToStart, LogSettings),
}

impl Engine {
    /// Starts a second engine with these settings beside this one: with the same model families,
    /// parsers and token rules, in processes if this one's model is in processes. Both lease the
    /// memory of their requests from one budget. Each has a journal of its own, in the same folder.
    /// This engine goes on as before.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn start_successor(&self, config: EngineConfig) -> Result<Self, StartError> {
        let memory = Some(Arc::clone(self.memory()));
        let sharing = JournalSharing::With(self.inner.journals.clone());
        match &self.inner.how {
            HowStarted::InThisProcess(registries) => {
                let change = |settings: &mut SystemConfig| settings.memory = memory;
                let registries = Registries::clone(registries);
                Self::launch(config, registries, |_| (), change, sharing).await
            }
            #[cfg(unix)]
            HowStarted::InProcesses(how, log) => {
                let beside = Beside { memory, sharing };
                Self::launch_process(how.clone(), config, log, |_| (), beside).await
            }
        }
    }
}
