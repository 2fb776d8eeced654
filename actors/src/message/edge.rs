//! The edges between actors: who says something to whom. Faults are injected, and losses told of,
//! by edge.

/// One direction between two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// Jobs for the input processors.
    DoorToInput,
    /// Requests to accept or to give up.
    DoorToLedger,
    /// An operator's orders and questions.
    DoorToScheduler,
    /// Requests to schedule or to give up, and new epochs.
    LedgerToScheduler,
    /// What became final.
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
    /// Stop strings that were found, and a new detokenizer's wish to be told everything.
    DetokenizerToLedger,
    /// Deliveries, and a new streamer's wish to be told everything.
    StreamerToLedger,
    /// News that an actor was replaced.
    SupervisorToLedger,
    /// An actor's own timer, the watchdog's pings, and the looks of those who watch from outside:
    /// what would not be said if nothing went on.
    Timer,
    /// Grammars to compile.
    SchedulerToStructuredOutput,
    /// What became of grammars.
    StructuredOutputToScheduler,
    /// Word that a thread is done with a grammar.
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

    /// The name on the chaos surface: `sender->receiver`.
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

/// No edge goes by that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no edge {0:?}; an edge is named like \"scheduler->worker\"")]
pub struct UnknownEdge(pub String);

/// What every message of an actor knows about itself.
pub trait Letter: ractor::Message {
    /// Who sent it to whom.
    fn edge(&self) -> Edge;

    /// The watchdog's question whether the actor still takes messages.
    fn ping() -> Self;

    /// Whether it is that question.
    fn is_ping(&self) -> bool;

    /// A second copy, for chaos to deliver twice. `None` for what carries a way to answer: an
    /// answer is given once. As it stands, for receivers whose every order is to be answered.
    fn duplicate(&self) -> Option<Self> {
        self.is_ping().then(Self::ping)
    }
}

/// The watchdog's question in a [`Letter`] that has it as the variant `Ping`.
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
