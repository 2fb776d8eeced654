//! The part of a system that runs in this process: all of it, or one of the two ends of a link.

use std::sync::Arc;

use super::{engine_process::EngineProcess, uplink::Uplink};
use crate::message::Role;

/// The part of a system that runs in this process.
#[derive(Debug)]
pub(crate) enum Part {
    /// All actors.
    Whole,
    /// All but the core, which runs in an engine process.
    Front(Arc<EngineProcess>),
    /// The core.
    Engine(Arc<Uplink>),
}

impl Part {
    /// Returns whether an actor below the root runs in this process. In the front, an actor that
    /// watches the engine process takes the place of the core's supervisor.
    pub(crate) fn has(&self, role: Role) -> bool {
        let is_core = role == Role::Core || role.supervisor() == Some(Role::Core);
        match self {
            Self::Whole => true,
            Self::Front(_) => !is_core || role == Role::Core,
            Self::Engine(_) => is_core || role == Role::Root,
        }
    }

    /// Returns the front's engine process.
    pub(crate) fn front(&self) -> Option<&Arc<EngineProcess>> {
        match self {
            Self::Front(process) => Some(process),
            Self::Whole | Self::Engine(_) => None,
        }
    }

    /// Returns the engine process's end of the link.
    pub(crate) fn engine(&self) -> Option<&Arc<Uplink>> {
        match self {
            Self::Engine(uplink) => Some(uplink),
            Self::Whole | Self::Front(_) => None,
        }
    }
}
