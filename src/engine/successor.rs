//! A second engine that takes the place of a running one, with another model.

use std::sync::Arc;

use playhouse_actors::system::SystemConfig;

#[cfg(unix)]
use super::process::HowToStart;
use super::{Engine, StartError, builder::Registries};
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
    /// memory of their requests from one budget. This engine goes on as before.
    ///
    /// # Errors
    /// As [`Engine::start`]. A journal belongs to one engine alone.
    pub async fn start_successor(&self, config: EngineConfig) -> Result<Self, StartError> {
        let memory = Some(Arc::clone(self.memory()));
        match &self.inner.how {
            HowStarted::InThisProcess(registries) => {
                let change = |settings: &mut SystemConfig| settings.memory = memory;
                Self::launch(config, Registries::clone(registries), |_| (), change).await
            }
            #[cfg(unix)]
            HowStarted::InProcesses(how, log) => {
                Self::launch_process(how.clone(), config, log, |_| (), memory).await
            }
        }
    }
}
