//! The time of one call, and its rates.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use burn::tensor::{Device, ExecutionError, Tensor};
use playhouse_kernels::{KernelError, TensorCores};

use crate::cli::bench::distribution::Distribution;

/// The reason why an operation was not measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    /// Its operands could not be created.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The device could not run it.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
}

/// The work of one call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Work {
    /// Bytes that must be read from memory or written to it.
    pub(super) bytes: f64,
    /// Multiplications and additions.
    pub(super) flops: f64,
}

/// The speed of the work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// The median.
    pub(super) time_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) flops: f64,
}

/// Calls before the measurement, to warm up caches and clocks.
const WARM_UPS: usize = 2;
/// Fewest calls, however long each takes.
const CALLS_MIN: usize = 3;
/// Seconds of work that a GPU gets before the host waits for it.
const BATCH_S: f64 = 0.02;
/// Most calls in one batch of this work.
const BATCH_MAX: usize = 200;

/// The device, and the time to measure.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) tensor_cores: TensorCores,
    pub(super) duration: Duration,
}

impl Bench {
    /// Measures `call` in many calls. On a GPU, calls only submit work. So many are submitted at a
    /// time that waiting for the GPU is short beside them. The result of the first call is read: an
    /// error stays in the results that it damaged, and waiting does not report it.
    ///
    /// # Errors
    /// The device's errors.
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
