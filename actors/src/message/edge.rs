//! The edges between actors: each names a sender and a receiver. Chaos injects faults by edge, and
//! losses are reported by edge.

/// One direction of messages between two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// Jobs for the input processors.
    DoorToInput,
    /// Requests to accept or to abort.
    DoorToLedger,
    /// Orders and questions of an operator.
    DoorToScheduler,
    /// Requests to schedule or to abort, and new epochs.
    LedgerToScheduler,
    /// Reports of the steps: tokens and ends that are final for the scheduler.
    SchedulerToLedger,
    /// Allocation plans.
    SchedulerToKvCache,
    /// Steps.
    SchedulerToWorker,
    /// Results of steps.
    WorkerToScheduler,
    /// Steps that failed.
    WorkerToLedger,
    /// Results from the device thread.
    DeviceToWorker,
    /// Committed tokens.
    LedgerToDetokenizer,
    /// Text.
    DetokenizerToStreamer,
    /// Stop strings that were found, and a new detokenizer's request for everything from the start.
    DetokenizerToLedger,
    /// Deliveries, and a new streamer's request for everything from the start.
    StreamerToLedger,
    /// News that an actor was replaced.
    SupervisorToLedger,
    /// An actor's own timer, the watchdog's pings, and queries of observers outside the engine.
    /// These messages are not part of the work on requests.
    Timer,
    /// Grammars to compile.
    SchedulerToStructuredOutput,
    /// Results of compiling grammars.
    StructuredOutputToScheduler,
    /// News that a thread has finished a grammar.
    CompilerToStructuredOutput,
}

impl Edge {
    /// All edges.
    pub const ALL: [Self; 19] = [
        Self::DoorToInput,
        Self::DoorToLedger,
        Self::DoorToScheduler,
        Self::LedgerToScheduler,
        Self::SchedulerToLedger,
        Self::SchedulerToKvCache,
        Self::SchedulerToWorker,
        Self::WorkerToScheduler,
        Self::WorkerToLedger,
        Self::DeviceToWorker,
        Self::LedgerToDetokenizer,
        Self::DetokenizerToStreamer,
        Self::DetokenizerToLedger,
        Self::StreamerToLedger,
        Self::SupervisorToLedger,
        Self::Timer,
        Self::SchedulerToStructuredOutput,
        Self::StructuredOutputToScheduler,
        Self::CompilerToStructuredOutput,
    ];

    /// Returns the name on the chaos surface: `sender->receiver`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DoorToInput => "door->input",
            Self::DoorToLedger => "door->ledger",
            Self::DoorToScheduler => "door->scheduler",
            Self::LedgerToScheduler => "ledger->scheduler",
            Self::SchedulerToLedger => "scheduler->ledger",
            Self::SchedulerToKvCache => "scheduler->kv_cache",
            Self::SchedulerToWorker => "scheduler->worker",
            Self::WorkerToScheduler => "worker->scheduler",
            Self::WorkerToLedger => "worker->ledger",
            Self::DeviceToWorker => "device->worker",
            Self::LedgerToDetokenizer => "ledger->detokenizer",
            Self::DetokenizerToStreamer => "detokenizer->streamer",
            Self::DetokenizerToLedger => "detokenizer->ledger",
            Self::StreamerToLedger => "streamer->ledger",
            Self::SupervisorToLedger => "supervisor->ledger",
            Self::Timer => "timer",
            Self::SchedulerToStructuredOutput => "scheduler->structured_output",
            Self::StructuredOutputToScheduler => "structured_output->scheduler",
            Self::CompilerToStructuredOutput => "compiler->structured_output",
        }
    }
}

impl std::str::FromStr for Edge {
    type Err = UnknownEdge;

    fn from_str(name: &str) -> Result<Self, UnknownEdge> {
        let named = Self::ALL.into_iter().find(|edge| edge.as_str() == name);
        named.ok_or_else(|| UnknownEdge(name.to_owned()))
    }
}

/// The error for a name that no edge has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no edge {0:?}; an edge is named like \"scheduler->worker\"")]
pub struct UnknownEdge(pub String);

/// The facts that every message of an actor knows about itself.
pub trait Letter: ractor::Message {
    /// Returns the message's sender and receiver.
    fn edge(&self) -> Edge;

    /// Returns the watchdog's question whether the actor still takes messages.
    fn ping() -> Self;

    /// Returns whether the message is that question.
    fn is_ping(&self) -> bool;

    /// Returns a second copy, so that chaos can deliver the message twice. Returns `None` for a
    /// message that carries a reply port, because a reply is sent only once. The default copies
    /// pings only; it serves receivers whose every order needs a reply.
    fn duplicate(&self) -> Option<Self> {
        self.is_ping().then(Self::ping)
    }
}

/// Implements the watchdog's question for a [`Letter`] that has a variant `Ping`.
macro_rules! pings {
    () => {
        fn ping() -> Self {
            Self::Ping
        }

        fn is_ping(&self) -> bool {
            matches!(self, Self::Ping)
        }
    };
}
pub(super) use pings;
