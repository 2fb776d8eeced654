//! The chaos interface of a system: fault injection from outside.

use std::collections::BTreeMap;

use super::context::Context;
use crate::{
    fault::{Chaos, EdgeFaults, How, Observed},
    link::frames::{Fault, ToEngine},
    logic::{
        admission::Admission,
        request::ids::{EngineIndex, Epoch, RequestId, TokenId},
    },
    message::{Edge, Role},
};

/// The actor that was struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struck {
    /// The role.
    pub role: Role,
    /// The epoch in which it was struck. A later epoch shows that the core started over.
    pub epoch: Epoch,
}

/// Numbers of hangs that were found so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hangs {
    /// Actors that hung.
    pub actors: u64,
    /// Those of them that chaos did not make hang.
    pub unordered: u64,
    /// Steps that hung.
    pub steps: u64,
}

impl Hangs {
    /// Returns the hangs that were found since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            actors: self.actors - before.actors,
            unordered: self.unordered - before.unordered,
            steps: self.steps - before.steps,
        }
    }

    /// Returns the number of false alarms, where the device does not hang.
    #[must_use]
    pub fn false_alarms(self) -> u64 {
        self.unordered + self.steps
    }
}

/// The reason why no actor was struck.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChaosError {
    /// There is no such actor.
    #[error("there is no {} with index {index}", role.as_str())]
    NoSuchActor {
        /// The role.
        role: Role,
        /// The index among the actors of that role.
        index: usize,
    },
    /// The actor's process is being replaced.
    #[error("the engine process, which has the {}, is being replaced", role.as_str())]
    NoProcess {
        /// The role.
        role: Role,
    },
    /// The role is the root. Its end is the end of the engine.
    #[error("the root cannot be struck: its end is the engine's")]
    Root,
}

/// The faults that can be made in one system.
#[derive(Debug, Clone, Copy)]
pub struct ChaosControl<'a> {
    pub(crate) context: &'a Context,
}

impl ChaosControl<'_> {
    /// Strikes one actor now.
    ///
    /// # Errors
    /// [`ChaosError`] when the actor does not exist, or must not be struck.
    pub fn strike(&self, role: Role, index: usize, how: How) -> Result<Struck, ChaosError> {
        if role == Role::Root {
            return Err(ChaosError::Root);
        }
        let context = self.context;
        let none = ChaosError::NoSuchActor { role, index };
        let slot = context.directory.find(role, index).ok_or(none.clone())?;
        let epoch = context.ledger().epoch();
        if let Some(engines) = context.part.front().filter(|_| !context.part.has(role)) {
            // The index is that of the engine, which has one actor of this role.
            let process = engines.get(EngineIndex(index)).ok_or(none)?;
            let strike = ToEngine::Fault(Fault::Strike(role, 0, how));
            process.send(&strike).map_err(|_| ChaosError::NoProcess { role })?;
            return Ok(Struck { role, epoch });
        }
        let (actor, _) = slot.occupant().ok_or(none)?;
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

    /// Returns the number of committed output tokens of each open request. A client that gets more
    /// got tokens that were committed later.
    #[must_use]
    pub fn committed(&self) -> BTreeMap<RequestId, usize> {
        self.context.ledger().output_lengths()
    }

    /// Returns the numbers of hangs that were found so far.
    #[must_use]
    pub fn hangs(&self) -> Hangs {
        let counts = &self.context.observers.hangs;
        let elsewhere = self.context.part.front().map(|engines| engines.hangs());
        let [actors, unordered, steps] = elsewhere.unwrap_or_default();
        Hangs {
            actors: counts.actors() + actors,
            unordered: counts.unordered() + unordered,
            steps: counts.steps() + steps,
        }
    }

    /// Returns the reservations of open requests.
    #[must_use]
    pub fn admission(&self) -> Admission {
        self.context.ledger().admission()
    }

    /// Sets the faults that messages on `edge` meet from now on.
    pub fn set_edge(&self, edge: Edge, faults: EdgeFaults) {
        self.source().set_edge(edge, faults);
        self.engine_process(Fault::Edge(edge.as_str().to_owned(), faults));
    }

    /// Makes a fault in each engine process. Returns whether there is one to make it in.
    pub fn engine_process(&self, fault: Fault) -> bool {
        self.context.part.front().is_some_and(|engines| engines.fault(fault))
    }

    /// Makes a fault in the process of one engine. Returns whether there is one to make it in.
    pub fn engine_process_of(&self, engine: EngineIndex, fault: Fault) -> bool {
        let process = self.context.part.front().and_then(|engines| engines.get(engine));
        process.is_some_and(|process| process.send(&ToEngine::Fault(fault)).is_ok())
    }

    /// Lets each engine process end in every step with a prompt that has this token. Returns
    /// whether there is an engine process.
    pub fn poison_process(&self, token: TokenId) -> bool {
        let engines = self.context.part.front();
        engines.map(|engines| engines.set_poison(Some(token))).is_some()
    }

    /// Ends all faults.
    pub fn calm(&self) {
        self.source().calm();
        let _ = self.context.part.front().map(|engines| engines.set_poison(None));
        self.engine_process(Fault::Calm);
    }

    /// Returns the source of all faults of this system.
    #[must_use]
    pub fn source(&self) -> &Chaos {
        &self.context.observers.chaos
    }
}
