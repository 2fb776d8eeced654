//! What a simulation sees of a running system, where it happens.

use std::time::Duration;

use super::{Delivery, How};
use crate::{
    logic::{
        admission::Tenant,
        allocation::AllocationPlan,
        ids::{Epoch, RequestId},
        kv_cache::KvCacheManager,
        ledger::CommitVerdict,
        outputs::Commit,
        request::FinishReason,
        scheduler_output::SchedulerOutput,
        structured_output::StructuredOutput,
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
    /// The ledger began an epoch.
    Epoch {
        /// The new one.
        epoch: Epoch,
        /// Requests that live on in it.
        num_live: usize,
        /// What made it necessary.
        why: &'a str,
    },
    /// The ledger took on a request.
    Accepted {
        /// Which.
        request: RequestId,
        /// Whose.
        tenant: Option<Tenant>,
    },
    /// The ledger decided on a commit.
    Commit {
        /// Its epoch.
        epoch: Epoch,
        /// What it says.
        commit: &'a Commit,
        /// What became of it.
        verdict: &'a CommitVerdict,
    },
    /// The ledger ended a request, though not by a commit.
    Ended {
        /// Which.
        request: RequestId,
        /// Tokens that count.
        position: usize,
        /// Why.
        reason: &'a FinishReason,
    },
    /// The ledger forgot a request, whose end was delivered.
    Forgotten {
        /// Which.
        request: RequestId,
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
