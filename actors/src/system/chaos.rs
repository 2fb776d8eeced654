//! Faults on purpose, from outside: the chaos surface of a system (feature `chaos`).

use std::collections::BTreeMap;

use super::context::Context;
use crate::{
    fault::{Chaos, EdgeFaults, How, Observed},
    logic::{
        admission::Admission,
        request::ids::{Epoch, RequestId},
    },
    message::{Edge, Role},
};

/// What a strike hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struck {
    /// The role.
    pub role: Role,
    /// The epoch in which it was struck; a later one tells that the core started over.
    pub epoch: Epoch,
}

/// Hangs that were found so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hangs {
    /// Actors.
    pub actors: u64,
    /// Those of them that nothing made hang.
    pub unordered: u64,
    /// Steps.
    pub steps: u64,
}

impl Hangs {
    /// Those that were not found `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            actors: self.actors - before.actors,
            unordered: self.unordered - before.unordered,
            steps: self.steps - before.steps,
        }
    }

    /// Those that were none, where the device does not hang.
    #[must_use]
    pub fn false_alarms(self) -> u64 {
        self.unordered + self.steps
    }
}

/// Why nothing was struck.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChaosError {
    /// There is no such actor.
    #[error("there is no {} with index {index}", role.as_str())]
    NoSuchActor {
        /// The role.
        role: Role,
        /// Which of that role.
        index: usize,
    },
    /// The root's end is the engine's.
    #[error("the root cannot be struck: its end is the engine's")]
    Root,
}

/// The hands of chaos on one system.
#[derive(Debug, Clone, Copy)]
pub struct ChaosControl<'a> {
    pub(crate) context: &'a Context,
}

impl ChaosControl<'_> {
    /// Strikes one actor, now.
    ///
    /// # Errors
    /// [`ChaosError`] when it does not exist, or must not be struck.
    pub fn strike(&self, role: Role, index: usize, how: How) -> Result<Struck, ChaosError> {
        if role == Role::Root {
            return Err(ChaosError::Root);
        }
        let context = self.context;
        let none = ChaosError::NoSuchActor { role, index };
        let slot = context.directory.find(role, index).ok_or(none.clone())?;
        let (actor, _) = slot.occupant().ok_or(none)?;
        let epoch = context.ledger().epoch();
        match how {
            How::Kill => {
                context.observers.chaos.observe(&Observed::Struck { role, index, how });
                actor.kill();
            }
            How::Panic | How::Hang => {
                context.observers.chaos.arm(role, index, how);
                slot.ping();
            }
        }
        Ok(Struck { role, epoch })
    }

    /// Output tokens that each open request has for good. What a client gets beyond them was
    /// committed later.
    #[must_use]
    pub fn committed(&self) -> BTreeMap<RequestId, usize> {
        self.context.ledger().output_lengths()
    }

    /// Hangs that were found so far.
    #[must_use]
    pub fn hangs(&self) -> Hangs {
        let counts = &self.context.observers.hangs;
        Hangs { actors: counts.actors(), unordered: counts.unordered(), steps: counts.steps() }
    }

    /// What is reserved for open requests.
    #[must_use]
    pub fn admission(&self) -> Admission {
        self.context.ledger().admission()
    }

    /// From now on, messages on `edge` meet these faults.
    pub fn set_edge(&self, edge: Edge, faults: EdgeFaults) {
        self.source().set_edge(edge, faults);
    }

    /// No more faults.
    pub fn calm(&self) {
        self.source().calm();
    }

    /// Where all faults of this system come from.
    #[must_use]
    pub fn source(&self) -> &Chaos {
        &self.context.observers.chaos
    }
}
