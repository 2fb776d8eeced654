//! Runs of many seeds on several threads, and reports of failed seeds.

use std::{
    fmt::Write as _,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::run::{Options, Outcome, run};

/// Number of events shown before the violation.
const LAST_EVENTS: usize = 60;

/// The result of many runs.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Number of runs.
    pub num_seeds: u64,
    /// Number of steps that all devices computed.
    pub num_steps: u64,
    /// Number of faults.
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
    /// Length of the sweep, in real time.
    pub took: Duration,
    /// Failed seeds and their violations, in order of the seeds; at most `max_failures`.
    pub failures: Vec<(u64, String)>,
}

impl Sweep {
    fn add(&mut self, outcome: Outcome) {
        self.num_seeds += 1;
        self.num_steps += outcome.num_steps;
        self.num_faults += outcome.num_faults;
        self.num_deaths += outcome.num_deaths;
        self.num_processes += outcome.num_processes;
        self.num_requests += outcome.num_requests;
        self.num_adopted += outcome.num_adopted;
        self.longest_stall = self.longest_stall.max(outcome.longest_stall);
        self.failures.extend(outcome.violation.map(|violation| (outcome.seed, violation)));
    }

    /// Returns the number of runs in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.num_seeds as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Runs `seeds` on `num_threads` threads until `max_failures` of them have failed. `progress` is
/// called every 1,000 seeds with the number of seeds begun.
pub fn sweep(
    seeds: Range<u64>,
    num_threads: usize,
    options: Options,
    max_failures: usize,
    progress: impl Fn(u64) + Sync,
) -> Sweep {
    let begun = Instant::now();
    let (next, is_over) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let total = Mutex::new(Sweep::default());
    std::thread::scope(|scope| {
        for _ in 0..num_threads.max(1) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if (seed - seeds.start) % 1_000 == 999 {
                        progress(seed - seeds.start + 1);
                    }
                    let outcome = run(seed, options);
                    let mut total = total.lock();
                    total.add(outcome);
                    if total.failures.len() >= max_failures {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut total = total.into_inner();
    total.took = begun.elapsed();
    total.failures.sort();
    total
}

/// Returns the command that runs one seed again and shows all its events.
#[must_use]
pub fn replay_command(seed: u64) -> String {
    format!(
        "cargo run --release -p playhouse-actors --features sim --bin playhouse-sim -- \
         --seed {seed} --trace"
    )
}

/// Runs a failed seed again and returns a report with its last events.
#[must_use]
pub fn explain(seed: u64, options: Options) -> String {
    let outcome = run(seed, Options { verbose: true, ..options });
    let mut text = String::new();
    let violation = outcome.violation.as_deref().unwrap_or("nothing is wrong this time");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "seed {seed}: {violation}");
    let end = outcome.log.iter().position(|line| line.contains("VIOLATION"));
    let end = end.map_or(outcome.log.len(), |line| (line + 4).min(outcome.log.len()));
    for line in &outcome.log[end.saturating_sub(LAST_EVENTS)..end] {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "to replay it with all events:\n    {}", replay_command(seed));
    text
}
