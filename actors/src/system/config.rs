//! What an actor system is told at its start.

use std::{sync::Arc, time::Duration};

use crate::{
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
    /// Value of the metrics' `engine` label.
    pub engine: String,
    /// What may be accepted.
    pub admission: AdmissionLimits,
    /// Memory for requests and their outputs, bytes.
    pub max_request_memory_bytes: usize,
    /// Input processors.
    pub num_input_processors: usize,
    /// Pairs of a detokenizer and an output streamer.
    pub num_egress_shards: usize,
    /// Log-probabilities at most that a request may ask for, a position.
    pub max_logprobs: u32,
    /// How long one actor waits for another's answer.
    pub call_timeout: Duration,
    /// How long tokenizing and templating one request may take, its turns waited for included.
    pub input_timeout: Duration,
    /// Threads that compile grammars. None is started before the first grammar is wanted.
    pub num_grammar_threads: usize,
    /// How long compiling one grammar may take.
    pub grammar_timeout: Duration,
    /// A step may always take this long, and ten times its prediction.
    pub min_step_deadline: Duration,
    /// What the first step may take, when nothing is known about the device.
    pub first_step_deadline: Duration,
    /// A batch on its way out that is not confirmed by then is sent again.
    pub egress_timeout: Duration,
    /// How often lost messages, departed clients and passed deadlines are looked for.
    pub tick: Duration,
    /// An actor that is at one message for this long is killed, whatever kept it; an input processor
    /// may take `input_timeout`, a supervisor three times as long. Most hangs are found far sooner:
    /// see [`crate::logic::recovery::hang`].
    pub hang_timeout: Duration,
    /// A client that has text waiting and takes none for this long is cut off.
    pub reader_timeout: Duration,
    /// How often actors may die before more than themselves is replaced.
    pub supervision: Supervision,
    /// What the device's work runs on.
    pub device: DeviceMode,
    /// Who is told how long every message takes; nobody: none is timed.
    pub profiler: Option<Arc<dyn HandlerProfiler>>,
}

/// What runs the model and the tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMode {
    /// OS threads, so that no handler waits for a computation.
    Thread,
    /// The actors' own runtime, in simulated time.
    Task {
        /// What a step takes.
        step_time: Duration,
    },
}

/// How often actors may die before more than themselves is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supervision {
    intensities: [Intensity; Role::ACTORS.len()],
    /// Rebuilds of all actors in a row, without a step computed between them, that the root tries
    /// before it gives up.
    pub fruitless_rebuilds: usize,
}

impl Default for Supervision {
    /// Each role's own intensity.
    fn default() -> Self {
        let intensities = Role::ACTORS.map(Role::intensity);
        Self { intensities, fruitless_rebuilds: REBUILD_BACK_OFF.len() }
    }
}

impl Supervision {
    /// The same intensity for all, as chaos wants it.
    #[must_use]
    pub const fn uniform(intensity: Intensity) -> Self {
        let intensities = [intensity; Role::ACTORS.len()];
        Self { intensities, fruitless_rebuilds: REBUILD_BACK_OFF.len() }
    }

    /// Returns the intensity of a role. A party that is no actor has none of its own.
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

    /// Returns these intensities with windows that tolerate `times` as many deaths in the same time.
    /// Below 1, the root tries fewer rebuilds as well, rounded down.
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

    /// The defaults around a scheduler's configuration.
    #[must_use]
    pub fn new(scheduler: SchedulerConfig) -> Self {
        Self {
            scheduler,
            model_name: "model".to_owned(),
            engine: "0".to_owned(),
            admission: AdmissionLimits {
                max_num_requests: 16_384,
                max_num_queued_reqs: None,
                max_num_queued_tokens: None,
                quota: Quota::default(),
            },
            max_request_memory_bytes: 1 << 30,
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
            device: DeviceMode::Thread,
            profiler: None,
        }
    }
}
