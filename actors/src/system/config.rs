//! The settings of an actor system at its start.

use std::{sync::Arc, time::Duration};

use super::{journal::Journal, memory::MemoryBudget, recorder::Recorder};
use crate::{
    codec::MAX_PAYLOAD_LEN,
    logic::{
        admission::{AdmissionLimits, Quota},
        ledger::LedgerConfig,
        recovery::restart::{Intensity, REBUILD_BACK_OFF},
        scheduler::SchedulerConfig,
    },
    message::Role,
    ports::HandlerProfiler,
};

/// Settings of one actor system.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// The scheduler's policy and limits.
    pub scheduler: SchedulerConfig,
    /// Value of the metrics' `model_name` label.
    pub model_name: String,
    /// Value of the metrics' `engine` label. With several engines, it is the engine's index.
    pub engine: String,
    /// Number of engines, each with a core of its own. Above 1, each is a process.
    pub num_engines: usize,
    /// The limits of admission.
    pub admission: AdmissionLimits,
    /// Memory for requests and their outputs, bytes.
    pub max_request_memory_bytes: usize,
    /// The memory for requests, shared with other systems. `None`: the system's own, of
    /// `max_request_memory_bytes`.
    pub memory: Option<Arc<MemoryBudget>>,
    /// Number of input processors.
    pub num_input_processors: usize,
    /// Number of pairs of a detokenizer and an output streamer.
    pub num_egress_shards: usize,
    /// Largest number of log-probabilities a position that a request may ask for.
    pub max_logprobs: u32,
    /// How long one actor waits for another's answer.
    pub call_timeout: Duration,
    /// How long tokenizing and templating one request may take, with the wait for its turns.
    pub input_timeout: Duration,
    /// Number of threads that compile grammars. None is started before the first grammar.
    pub num_grammar_threads: usize,
    /// How long compiling one grammar may take.
    pub grammar_timeout: Duration,
    /// Least time limit of a step. The limit is ten times the prediction where that is longer.
    pub min_step_deadline: Duration,
    /// Time that the first step may take, when nothing is known about the device.
    pub first_step_deadline: Duration,
    /// Time after which an unconfirmed egress batch is sent again.
    pub egress_timeout: Duration,
    /// Time between two looks for lost messages, departed clients and passed deadlines.
    pub tick: Duration,
    /// Time after which an actor is killed that is still at one message, for whatever reason. An
    /// input processor may take `input_timeout` instead, and a supervisor three times as long. A
    /// worker waits for the end of a device thread for half of it, and for two seconds at most.
    /// Most hangs are found far sooner: see [`crate::logic::recovery::hang`].
    pub hang_timeout: Duration,
    /// Time after which a client is cut off that has text waiting and reads none.
    pub reader_timeout: Duration,
    /// How often actors may die before more than themselves is replaced.
    pub supervision: Supervision,
    /// Largest message to or from an engine process, bytes.
    pub max_message_bytes: usize,
    /// Where the device's work runs.
    pub device: DeviceMode,
    /// The journal that keeps requests of answers. `None`: they end with the process.
    pub journal: Option<Arc<Journal>>,
    /// The recorder of the engine in this process. `None`: there is no recording.
    pub recorder: Option<Arc<Recorder>>,
    /// The profiler that gets the time of every message. `None`: no message is timed.
    pub profiler: Option<Arc<dyn HandlerProfiler>>,
}

/// Where the model and the tokenizer run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMode {
    /// OS threads, so that no handler waits for a computation.
    Thread,
    /// The actors' own runtime, in simulated time.
    Task {
        /// Time that a step takes.
        step_time: Duration,
    },
}

/// How often actors may die before more than themselves is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supervision {
    intensities: [Intensity; Role::ACTORS.len()],
    /// Largest number of rebuilds in a row without a computed step between them. After it the root
    /// gives up.
    pub fruitless_rebuilds: usize,
}

impl Default for Supervision {
    /// Each role has its own intensity.
    fn default() -> Self {
        let intensities = Role::ACTORS.map(Role::intensity);
        Self { intensities, fruitless_rebuilds: REBUILD_BACK_OFF.len() }
    }
}

impl Supervision {
    /// Returns the same intensity for all roles, for chaos.
    #[must_use]
    pub const fn uniform(intensity: Intensity) -> Self {
        let intensities = [intensity; Role::ACTORS.len()];
        Self { intensities, fruitless_rebuilds: REBUILD_BACK_OFF.len() }
    }

    /// Returns the intensity of a role. A party that is no actor has no intensity of its own.
    #[must_use]
    pub fn intensity(&self, role: Role) -> Intensity {
        self.intensities.get(role as usize).copied().unwrap_or(role.intensity())
    }

    /// Returns these intensities with another one for a role.
    #[must_use]
    pub fn with(mut self, role: Role, intensity: Intensity) -> Self {
        if let Some(own) = self.intensities.get_mut(role as usize) {
            *own = intensity;
        }
        self
    }

    /// Returns these intensities with `times` as many deaths tolerated in the same time. Below 1,
    /// the root tries fewer rebuilds as well, rounded down.
    #[must_use]
    pub fn tolerating(self, times: f64) -> Self {
        Self {
            intensities: self.intensities.map(|intensity| intensity.tolerating(times)),
            fruitless_rebuilds: (self.fruitless_rebuilds as f64 * times.min(1.0)) as usize,
        }
    }
}

impl SystemConfig {
    /// Returns the settings of the ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerConfig {
        LedgerConfig {
            limits: self.admission,
            num_shards: self.num_egress_shards,
            max_num_batched_tokens: self.scheduler.max_num_batched_tokens,
        }
    }

    /// Returns the default settings around a scheduler's configuration.
    #[must_use]
    pub fn new(scheduler: SchedulerConfig) -> Self {
        Self {
            scheduler,
            model_name: "model".to_owned(),
            engine: "0".to_owned(),
            num_engines: 1,
            admission: AdmissionLimits {
                max_num_requests: 16_384,
                max_num_queued_reqs: None,
                max_num_queued_tokens: None,
                quota: Quota::default(),
            },
            max_request_memory_bytes: 1 << 30,
            memory: None,
            num_input_processors: 2,
            num_egress_shards: 2,
            max_logprobs: 20,
            call_timeout: Duration::from_secs(2),
            input_timeout: Duration::from_secs(10),
            num_grammar_threads: 2,
            grammar_timeout: Duration::from_secs(10),
            min_step_deadline: Duration::from_millis(100),
            first_step_deadline: Duration::from_secs(300),
            egress_timeout: Duration::from_secs(2),
            tick: Duration::from_millis(250),
            hang_timeout: Duration::from_secs(5),
            reader_timeout: Duration::from_secs(60),
            supervision: Supervision::default(),
            max_message_bytes: MAX_PAYLOAD_LEN,
            device: DeviceMode::Thread,
            journal: None,
            recorder: None,
            profiler: None,
        }
    }
}
