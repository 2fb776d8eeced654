//! What a simulation sees of a running system, where it happens.

use std::time::Duration;

use super::{Delivery, How};
use crate::{
    logic::{
        kv_cache::{KvCacheManager, allocation::AllocationPlan},
        ledger::{GroundState, LedgerEvent},
        request::structured_output::StructuredOutput,
        scheduler::output::SchedulerOutput,
    },
    message::{Edge, Role},
};

/// Something that happened.
#[derive(Debug)]
pub enum Observed<'a> {
    /// A message was sent.
    Message {
        /// From whom to whom.
        edge: Edge,
        /// What becomes of it.
        delivery: Delivery,
    },
    /// An actor is struck.
    Struck {
        /// Who.
        role: Role,
        /// Which of its kind.
        index: usize,
        /// How.
        how: How,
    },
    /// A supervisor learned of a death.
    Died {
        /// Who.
        role: Role,
        /// Why.
        cause: &'a str,
    },
    /// The ledger changed.
    Ledger {
        /// The change.
        event: &'a LedgerEvent,
        /// The state after it.
        state: &'a GroundState,
    },
    /// The KV cache manager executed a plan.
    KvCache {
        /// The plan.
        plan: &'a AllocationPlan,
        /// The manager afterwards.
        manager: &'a KvCacheManager,
    },
    /// The scheduler sends a step to the worker.
    Step {
        /// The step.
        output: &'a SchedulerOutput,
    },
}

/// Is told of everything that happens in one system.
pub trait Observer: Send + Sync {
    /// Called where it happens: locks of the system may be held.
    fn observe(&self, what: &Observed<'_>);

    /// What compiling a grammar takes, where threads run in simulated time.
    fn compile_delay(&self, _format: &StructuredOutput) -> Duration {
        Duration::ZERO
    }

    /// What the next step takes beyond what it takes, where the device runs in simulated time.
    fn step_delay(&self) -> Duration {
        Duration::ZERO
    }
}
