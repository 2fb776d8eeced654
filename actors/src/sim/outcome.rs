//! The options and the result of one run.

use std::time::Duration;

use crate::fault::Bug;

/// The options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether all events are kept.
    pub verbose: bool,
    /// Whether the run has no faults.
    pub without_faults: bool,
    /// Whether all actors run in one process and no fault depends on others, as in the first
    /// version of the world. Seeds of that time then mean the same.
    pub is_first_world: bool,
    /// A planted bug.
    pub bug: Option<Bug>,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The first violation, if there was one.
    pub violation: Option<String>,
    /// Digest of all events.
    pub digest: u64,
    /// Number of events.
    pub num_events: u64,
    /// Number of steps that the device computed.
    pub num_steps: u64,
    /// Number of random and planned faults, without those of the device.
    pub num_faults: u64,
    /// Number of actors that died.
    pub num_deaths: u64,
    /// Number of engine processes that were started.
    pub num_processes: u64,
    /// Number of accepted requests.
    pub num_requests: u64,
    /// Number of requests of a new epoch that continued in the block that they had been filling.
    pub num_adopted: u64,
    /// Longest time without a token while there was no fault.
    pub longest_stall: Duration,
    /// Length of the run, in simulated time.
    pub simulated: Duration,
    /// Events, if they were kept.
    pub log: Vec<String>,
}

impl Outcome {
    /// Returns the outcome of a run that has not begun.
    pub(super) fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}
