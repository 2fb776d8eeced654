//! The events of a running system that a simulation sees, reported where they happen.

use std::time::Duration;

use super::{Delivery, How};
use crate::{
    logic::{
        encoder_cache::EncoderCache,
        kv_cache::{KvCacheManager, allocation::AllocationPlan},
        ledger::{GroundState, LedgerEvent},
        request::structured_output::StructuredOutput,
        scheduler::output::SchedulerOutput,
    },
    message::{Edge, Role},
};

/// An event.
#[derive(Debug)]
pub enum Observed<'a> {
    /// A message was sent.
    Message {
        /// Sender and receiver.
        edge: Edge,
        /// Its delivery.
        delivery: Delivery,
    },
    /// An actor is struck.
    Struck {
        /// Role of the actor.
        role: Role,
        /// Index of the actor among those of its role.
        index: usize,
        /// Kind of the strike.
        how: How,
    },
    /// A supervisor learned of a death.
    Died {
        /// Role of the actor.
        role: Role,
        /// Cause of the death.
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
    /// The encoder cache manager has taken a message.
    EncoderCache {
        /// Its plan afterwards.
        cache: &'a EncoderCache,
    },
    /// The scheduler sends a step to the worker.
    Step {
        /// The step.
        output: &'a SchedulerOutput,
    },
}

/// Receives all events of one system.
pub trait Observer: Send + Sync {
    /// Receives an event where it happens. Locks of the system may be held.
    fn observe(&self, what: &Observed<'_>);

    /// Returns the time to compile a grammar, where threads run in simulated time.
    fn compile_delay(&self, _format: &StructuredOutput) -> Duration {
        Duration::ZERO
    }

    /// Returns the time to encode images, where the device runs in simulated time.
    fn encode_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the time to add to the next step, where the device runs in simulated time.
    fn step_delay(&self) -> Duration {
        Duration::ZERO
    }
}
