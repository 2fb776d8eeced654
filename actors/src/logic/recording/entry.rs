//! The entries of a recording.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{RowDone, schedule_hash};
use crate::logic::{
    encoder_cache::EncoderAnswer,
    journal::Fingerprint,
    ledger::Restriction,
    request::{
        EngineRequest,
        failure::Failure,
        ids::{Epoch, Micros, RequestId, Step},
    },
    scheduler::{PauseState, RecoveredRequest, Resource, Scheduled, SchedulerConfig},
};

/// One input of the scheduler or the KV cache manager, or a result of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The engine begins. The first entry.
    Began(Box<Began>),
    /// A scheduler starts, without state.
    SchedulerStarted,
    /// The scheduler begins an epoch with these live requests.
    Recovered {
        /// The epoch.
        epoch: Epoch,
        /// The last step that was planned before.
        last_step: Step,
        /// The live requests.
        live: Vec<RecoveredRequest>,
    },
    /// The scheduler gets new requests.
    Added(Vec<Arc<EngineRequest>>),
    /// The scheduler stops requests.
    Aborted(Vec<RequestId>),
    /// The scheduler gets limits.
    Restricted(Restriction),
    /// The pause in force changes.
    Paused(PauseState),
    /// A reset of the prefix cache is asked for.
    ResetAsked {
        /// Whether running requests are preempted for it.
        reset_running: bool,
    },
    /// A resource is ready or has failed.
    Resolved {
        /// The resource.
        resource: Resource,
        /// Whether it is ready.
        ready: Result<(), Failure>,
    },
    /// The encoder cache has answered.
    Encoded(EncoderAnswer),
    /// The encoder cache gets a list of items.
    NeedsTaken,
    /// The scheduler begins to plan a step.
    StepBegan {
        /// The time.
        now: Micros,
    },
    /// The KV cache manager begins an epoch.
    KvCacheBegan(KvCacheBegan),
    /// The scheduler has planned the step.
    StepPlanned(PlannedStep),
    /// The scheduler gets the results of a step.
    StepDone {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
        /// The time.
        now: Micros,
        /// The result of each request, in the order of the device.
        rows: Vec<RowDone>,
    },
    /// The recording stops here, and the engine may go on.
    Stopped(StopCause),
}

/// The facts that a replay starts from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Began {
    /// The program's version.
    pub version: String,
    /// The facts on which tokens depend.
    pub fingerprint: Fingerprint,
    /// The settings of the scheduler and of the KV cache.
    pub scheduler: SchedulerConfig,
    /// The program's settings, in a format of its own. Empty if the recording is redacted.
    pub settings: Vec<u8>,
    /// Whether token ids and texts are replaced.
    pub is_redacted: bool,
}

/// The begin of an epoch at the KV cache manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvCacheBegan {
    /// The epoch.
    pub epoch: Epoch,
    /// The content that is left of the epoch before.
    pub content: KvContentKept,
    /// The number of tokens of each live request.
    pub live: Vec<(RequestId, usize)>,
    /// The last plans that were executed before. A scheduler may have died before it had the
    /// answers.
    pub executed: Executed,
}

/// The content that is left of the epoch before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvContentKept {
    /// The manager lives on.
    Manager,
    /// The content that the block directory names.
    Directory,
    /// None.
    Nothing,
}

/// The number of executed plans of the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Executed {
    /// The step.
    pub step: Step,
    /// Number of its plans that the KV cache manager has executed.
    pub rounds: u32,
}

/// A planned step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// The step.
    pub step: Step,
    /// The [hash](schedule_hash) of the whole plan.
    pub hash: u64,
    /// The requests to compute, in the order of the plan.
    pub rows: Vec<PlannedRow>,
}

/// The part of one request in a planned step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRow {
    /// The request.
    pub request: RequestId,
    /// Number of tokens to compute.
    pub num_tokens: usize,
}

/// The reason why a recording stops before its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StopCause {
    /// The engine has ended as its operator wanted.
    #[error("the engine ended")]
    Closed,
    /// The recording has its maximum size.
    #[error("the recording reached its maximum size")]
    MaxBytes,
    /// The disk was slower than the engine.
    #[error("the disk was slower than the engine")]
    QueueFull,
}

impl PlannedStep {
    /// Returns the entry of a planned step.
    #[must_use]
    pub fn of(scheduled: &Scheduled) -> Self {
        let rows = scheduled.output.num_scheduled_tokens();
        Self {
            step: scheduled.output.step,
            hash: schedule_hash(scheduled),
            rows: rows.map(|(request, num_tokens)| PlannedRow { request, num_tokens }).collect(),
        }
    }
}
