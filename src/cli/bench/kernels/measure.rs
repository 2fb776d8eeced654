//! The time of one call, and what it is worth.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use burn::tensor::{Device, ExecutionError, Tensor};
use playhouse_kernels::TensorCores;

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
/// Seconds of work that a GPU is given before it is waited for.
const BATCH_S: f64 = 0.02;
/// Calls at most of that.
const BATCH_MAX: usize = 200;

/// Where and for how long to measure.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) tensor_cores: TensorCores,
    pub(super) duration: Duration,
}

impl Bench {
    /// Calls `call` again and again. Calls to a GPU only submit: it is waited for after as many as
    /// take long beside the waiting. What the first call gives back is read there: an error stays
    /// with the results that it spoiled, of which waiting says nothing.
    ///
    /// # Errors
    /// What the device says.
    pub(super) fn measure(
        &self,
        work: Work,
        mut call: impl FnMut() -> Option<Tensor<2>>,
    ) -> Result<Rate, ExecutionError> {
        let is_cpu = self.device == Device::flex();
        if !is_cpu {
            call().map(Tensor::try_into_data).transpose()?;
        }
        let mut timed = |calls: usize| {
            let begun = Instant::now();
            (0..calls).for_each(|_| drop(black_box(call())));
            if !is_cpu {
                self.device.sync()?;
            }
            Ok(begun.elapsed().as_secs_f64() / calls as f64)
        };
        let mut last = 0.0;
        for _ in 0..WARM_UPS {
            last = timed(1)?;
        }
        let calls = match is_cpu {
            true => 1,
            false => ((BATCH_S / last) as usize).clamp(1, BATCH_MAX),
        };
        let begun = Instant::now();
        let mut times = Vec::new();
        while times.len() < CALLS_MIN || begun.elapsed() < self.duration {
            times.push(timed(calls)?);
        }
        let time_s = Distribution::of(times).median();
        Ok(Rate { time_s, bytes_per_s: work.bytes / time_s, flops: work.flops / time_s })
    }
}
