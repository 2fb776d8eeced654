//! The frames of a link: plain data. Every edge between the front's actors and the core's has its
//! frames, and so has each question of the front about the core.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    codec::{Frames, MAX_PAYLOAD_LEN},
    fault::{EdgeFaults, How},
    logic::{
        encoder_cache::EncoderCacheView,
        kv_cache::Adoption,
        ledger::Restriction,
        observe::{BlockMap, Timelines},
        recovery::{in_flight::SideWork, message_numbers::Stamp},
        request::{
            EngineRequest,
            ids::{Epoch, Micros, RequestId, Step, TokenId},
            lora::AdapterFingerprint,
            outputs::{Commit, DraftCounts, StepReport},
        },
        scheduler::{PauseState, RecoveredRequest, SchedulerStats, SchedulerView, StepStats},
    },
    message::{Role, SchedulerOrder, StepFailure},
    ports::{AdapterCheckError, ExecuteError},
    supervision::slot::ActorStats,
};

/// The format of all frames. Both ends are the same program, so another version is garbage.
pub const FRAMES: Frames = Frames { version: 4, max_len: MAX_PAYLOAD_LEN };

/// A frame from the front.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToEngine {
    /// The first frame: load the model. The program's own format of its settings.
    Load(Vec<u8>),
    /// Start the actors.
    Attach(Attach),
    /// From the ledger to the scheduler.
    Order(Stamp, SchedulerOrder),
    /// A part of the requests of an order to add them, if the order does not fit a frame.
    Added(Stamp, Vec<Arc<EngineRequest>>),
    /// The order itself, after its parts. If one was lost, the order is lost.
    Add {
        /// The order's place.
        stamp: Stamp,
        /// Number of requests in the parts before.
        num_requests: usize,
    },
    /// From the ledger to the scheduler.
    Given(Stamp),
    /// A part of the live requests of an epoch that is about to begin.
    Live(Epoch, Vec<RecoveredRequest>),
    /// From the ledger to the scheduler: the epoch begins.
    Recover {
        /// The new epoch.
        epoch: Epoch,
        /// Number of live requests in the parts before. If one was lost, the epoch does not begin.
        num_live: usize,
        /// Those of them that another engine may have had before. Tails of theirs are too old.
        newcomers: BTreeSet<RequestId>,
        /// The limits on scheduling.
        restriction: Restriction,
    },
    /// The pause in force.
    Pause(PauseState),
    /// No request is left, so no step is expected.
    Rest,
    /// Whether an observer looks at the steps.
    Watch(bool),
    /// A question. Its answer has the same number.
    Ask(u64, Question),
    /// A fault on purpose.
    Fault(Fault),
}

/// The facts that the actors of an engine process start from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attach {
    /// The front's time, which is the clock of both processes.
    pub now: Micros,
    /// The last step that an earlier process reported. Step numbers go on from it.
    pub last_step: Step,
    /// The pause in force.
    pub pause: PauseState,
    /// Whether an observer looks at the steps.
    pub is_watched: bool,
    /// The part of the KV cache of the processes before that this one adopts.
    pub adoption: Adoption,
}

/// A question about the core, or an operator's order that has an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// [`SchedulerMessage::Stats`](crate::message::SchedulerMessage::Stats).
    Stats,
    /// [`SchedulerMessage::View`](crate::message::SchedulerMessage::View).
    View {
        /// Largest number of running requests in the answer. The same limit holds for waiting
        /// requests.
        most: usize,
    },
    /// [`KvCacheManagerMessage::View`](crate::message::KvCacheManagerMessage::View).
    BlockMap,
    /// [`EncoderCacheManagerMessage::View`](crate::message::EncoderCacheManagerMessage::View).
    EncoderCache,
    /// [`EncoderCacheManagerMessage::Reset`](crate::message::EncoderCacheManagerMessage::Reset).
    ResetEncoderCache,
    /// [`SchedulerMessage::ResetPrefixCache`](crate::message::SchedulerMessage::ResetPrefixCache).
    ResetPrefixCache {
        /// Whether to preempt running requests.
        reset_running_requests: bool,
    },
    /// The steps of each request.
    Timelines,
    /// Release the memory of the KV cache.
    ReleaseKvCache,
    /// Allocate that memory again.
    RestoreKvCache,
    /// Read and check the adapter in the folder with this path.
    CheckAdapter(String),
}

/// The answer to a question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Stats`].
    Stats(SchedulerStats),
    /// To [`Question::View`].
    View(SchedulerView),
    /// To [`Question::BlockMap`].
    BlockMap(Option<BlockMap>),
    /// To [`Question::EncoderCache`].
    EncoderCache(EncoderCacheView),
    /// To [`Question::ResetEncoderCache`].
    EncoderCacheWasReset,
    /// To [`Question::ResetPrefixCache`].
    WasReset(bool),
    /// To [`Question::Timelines`].
    Timelines(Timelines),
    /// To [`Question::ReleaseKvCache`] and [`Question::RestoreKvCache`].
    Memory(Result<(), ExecuteError>),
    /// To [`Question::CheckAdapter`].
    Adapter(Result<AdapterFingerprint, AdapterCheckError>),
    /// The actor that was asked gave no answer.
    NoAnswer,
}

/// A fault on purpose in the engine process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Fault {
    /// Strike an actor.
    Strike(Role, usize, How),
    /// Give messages on an edge, named as in the chaos interface, these faults.
    Edge(String, EdgeFaults),
    /// End all faults.
    Calm,
    /// End the process with this exit code.
    Exit(i32),
    /// Write bytes on the link that are no frame.
    Garbage,
    /// Block all threads of the runtime.
    Wedge,
    /// End the process in every step with a prompt that has this token.
    Poison(TokenId),
}

/// A frame from an engine process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToFront {
    /// The load goes on. The program's own format of its progress.
    Loading(Vec<u8>),
    /// The model is loaded. The program's own format of the facts about it.
    Ready(Vec<u8>),
    /// The model could not be loaded, for this reason.
    Failed(String),
    /// A sign of life. Before [`ToEngine::Attach`] there is no status.
    Beat(Option<Status>),
    /// From the core's supervisor to the ledger: some actors of the core are new.
    CoreStarted(Status),
    /// From the scheduler to the ledger.
    Report(Stamp, StepReport),
    /// A part of the commits of a report, if the report does not fit a frame.
    Commits(Stamp, Vec<Commit>),
    /// The report itself, after its parts. If one was lost, the report is lost.
    ReportOf {
        /// The report's place.
        stamp: Stamp,
        /// The report, without its commits.
        report: StepReport,
        /// Number of commits in the parts before.
        num_commits: usize,
    },
    /// From the scheduler to the ledger.
    Reported(Stamp),
    /// The device gets a step. If the process dies, one of its requests may be the cause.
    StepGiven {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
        /// The requests in the step, each with its number of computed tokens after the step.
        requests: Vec<(RequestId, usize)>,
    },
    /// The device has computed a step.
    StepDone {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
    /// From the scheduler or the worker to the ledger.
    Lost {
        /// The epoch of the lost message.
        epoch: Epoch,
        /// A name of the lost message.
        what: Cow<'static, str>,
    },
    /// From the worker to the ledger.
    StepFailed {
        /// The epoch of the step.
        epoch: Epoch,
        /// The requests in the step, each with its number of computed tokens after the step.
        requests: Vec<(RequestId, usize)>,
        /// The reason.
        failure: StepFailure,
    },
    /// News for the front's metrics.
    Observed(Observation),
    /// The answer to the question with this number.
    Answer(u64, Answer),
    /// Work beside the steps begins, under this number. If the process dies, a request that needs
    /// the result may be the cause.
    WorkGiven(u64, SideWork),
    /// The work with this number has ended.
    WorkDone(u64),
}

/// The state of an engine process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The actors of the core.
    pub actors: Vec<ActorStats>,
    /// Messages handled since the process started, by the edges' numbers.
    pub edges: Vec<u64>,
    /// Whether the scheduler knows an epoch.
    pub has_begun: bool,
    /// Number of steps done since the process started.
    pub num_steps: u64,
    /// Whether a step is late.
    pub is_late: bool,
    /// The last step that was planned.
    pub last_step: Step,
    /// Predicted time of a step of one token, microseconds.
    pub step_time: Option<Micros>,
    /// Hangs since the process started: actors, those of them that chaos did not order, steps.
    pub hangs: [u64; 3],
}

/// News for the metrics.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Observation {
    /// A step was planned.
    Scheduled(StepStats, SchedulerStats),
    /// A step verified guesses.
    Drafted(Vec<DraftCounts>),
    /// Old or repeated messages were ignored.
    Stale(u64),
    /// An actor was replaced.
    Restarted(Role),
    /// An actor hangs.
    ActorHangs(Role),
    /// A step hangs.
    StepHangs,
    /// A recording ended before its engine.
    RecordingTruncated,
}
