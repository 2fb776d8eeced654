//! What an actor system is told at its start.

use std::time::Duration;

use crate::logic::scheduler::SchedulerConfig;

/// Settings of one actor system.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// The scheduler's policy and limits.
    pub scheduler: SchedulerConfig,
    /// Value of the metrics' `model_name` label.
    pub model_name: String,
    /// Value of the metrics' `engine` label.
    pub engine: String,
    /// Open requests at most; more are refused with a 503.
    pub max_num_requests: usize,
    /// Input processors.
    pub num_input_processors: usize,
    /// Pairs of a detokenizer and an output streamer.
    pub num_egress_shards: usize,
    /// Log-probabilities at most that a request may ask for, a position.
    pub max_logprobs: u32,
    /// How long one actor waits for another's answer.
    pub call_timeout: Duration,
    /// How long tokenizing and templating one request may take.
    pub input_timeout: Duration,
    /// A step may always take this long, and ten times its prediction.
    pub min_step_deadline: Duration,
    /// What the first step may take, when nothing is known about the device.
    pub first_step_deadline: Duration,
    /// A batch on its way out that is not confirmed by then is sent again.
    pub egress_timeout: Duration,
}

impl SystemConfig {
    /// The defaults around a scheduler's configuration.
    #[must_use]
    pub fn new(scheduler: SchedulerConfig) -> Self {
        Self {
            scheduler,
            model_name: "model".to_owned(),
            engine: "0".to_owned(),
            max_num_requests: 16_384,
            num_input_processors: 2,
            num_egress_shards: 2,
            max_logprobs: 20,
            call_timeout: Duration::from_secs(5),
            input_timeout: Duration::from_secs(30),
            min_step_deadline: Duration::from_secs(2),
            first_step_deadline: Duration::from_secs(300),
            egress_timeout: Duration::from_secs(5),
        }
    }
}
