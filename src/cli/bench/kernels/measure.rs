//! The time of one call, and what it is worth.

use std::time::{Duration, Instant};

use crate::cli::bench::distribution::Distribution;

/// What one call has to do.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Work {
    /// Bytes that must come from memory or go there.
    pub(super) bytes: f64,
    /// Multiplications and additions.
    pub(super) flops: f64,
}

/// How fast it was done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// The median.
    pub(super) time_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) flops: f64,
}

/// Calls before the measurement: caches and clocks warm up.
const WARM_UPS: usize = 2;
/// Calls at least, however long each takes.
const CALLS_MIN: usize = 3;

/// Calls `call` again and again for `duration`.
pub(super) fn measure(duration: Duration, work: Work, mut call: impl FnMut()) -> Rate {
    (0..WARM_UPS).for_each(|_| call());
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < CALLS_MIN || begun.elapsed() < duration {
        let called = Instant::now();
        call();
        times.push(called.elapsed().as_secs_f64());
    }
    let time_s = Distribution::of(times).median();
    Rate { time_s, bytes_per_s: work.bytes / time_s, flops: work.flops / time_s }
}
