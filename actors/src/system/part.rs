//! The part of a system that runs in this process: all of it, or one of the two ends of links.

use std::sync::Arc;

use super::{engines::Engines, uplink::Uplink};
use crate::message::Role;

/// The part of a system that runs in this process.
#[derive(Debug)]
pub(crate) enum Part {
    /// All actors.
    Whole,
    /// All but the cores, each of which runs in an engine process.
    Front(Arc<Engines>),
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

    /// Returns the front's engines.
    pub(crate) fn front(&self) -> Option<&Arc<Engines>> {
        match self {
            Self::Front(engines) => Some(engines),
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
