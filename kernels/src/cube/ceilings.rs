//! Measured limits of a GPU, by kernels that do nothing else.

use std::time::{Duration, Instant};

use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::prelude::*;

use super::{Vec4, Words, cubes, device_error, reserved, words_buffer};
use crate::{Ceilings, KernelError};

const UNITS: usize = 256;
/// Cubes of a launch: enough to fill any GPU.
const CUBES: usize = 4096;
/// Bytes that are read: more than any cache holds, but at most the device's largest buffer.
const READ_BYTES: u64 = 1 << 30;
/// Vectors that a unit multiplies in turn: enough to hide an instruction's latency.
const CHAINS: usize = 8;
/// Multiply-adds of each vector.
const ROUNDS: usize = 1024;

/// Measures each limit for `duration`.
///
/// # Errors
/// Too little memory for the buffer to read, or an error of the device.
pub(crate) fn measure(
    device: &cubecl::Device,
    duration: Duration,
) -> Result<Ceilings, KernelError> {
    const WHAT: &str = "memory to read";
    let client = device.client();
    let units = CUBES * UNITS;
    let sums = reserved(&client, units * size_of::<u32>(), WHAT)?;
    let bytes = READ_BYTES.min(client.properties().memory.max_page_size) as usize;
    // The same number for each unit, and at least one.
    let rounds = (bytes / size_of::<[u32; 4]>() / units).max(1);
    let bytes = rounds * units * size_of::<[u32; 4]>();
    let memory = reserved(&client, bytes, WHAT)?;
    let read_bytes_per_s = best(&client, duration, || {
        // SAFETY: units read strides of `memory` within its vectors, and each writes its own place.
        unsafe {
            read_kernel::launch_unchecked(
                &client,
                cubes(CUBES),
                CubeDim::new_1d(UNITS as u32),
                words_buffer(&memory),
                words_buffer(&sums),
                rounds,
                units,
            );
        }
        bytes as f64
    })?;
    let f32_flops = best(&client, duration, || {
        // SAFETY: each unit writes its own place.
        unsafe {
            fma_kernel::launch_unchecked(
                &client,
                cubes(CUBES),
                CubeDim::new_1d(UNITS as u32),
                words_buffer(&sums),
                0.5,
                ROUNDS,
            );
        }
        (2 * 4 * CHAINS * ROUNDS * units) as f64
    })?;
    Ok(Ceilings { read_bytes_per_s, f32_flops, bf16_flops: None, threads: None })
}

/// Returns the largest amount of work a second. `round` submits some work and returns its amount.
fn best(client: &Client, duration: Duration, round: impl Fn() -> f64) -> Result<f64, KernelError> {
    let wait = || block_on(client.sync()).map_err(device_error);
    round();
    wait()?;
    let begun = Instant::now();
    let mut best = 0.0_f64;
    while best == 0.0 || begun.elapsed() < duration {
        let started = Instant::now();
        let work = round();
        wait()?;
        best = best.max(work / started.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cube(launch_unchecked)]
fn read_kernel(memory: &[Words], sums: &mut [u32], rounds: usize, units: usize) {
    let mut sum = Words::new(0u32);
    for round in 0..rounds {
        sum ^= memory[round * units + ABSOLUTE_POS];
    }
    sums[ABSOLUTE_POS] =
        sum.extract(0usize) ^ sum.extract(1usize) ^ sum.extract(2usize) ^ sum.extract(3usize);
}

#[cube(launch_unchecked)]
fn fma_kernel(sums: &mut [f32], x: f32, rounds: usize) {
    let mut chains = Array::<Vec4>::new(CHAINS);
    #[unroll]
    for i in 0..CHAINS {
        chains[i] = Vector::new(f32::cast_from(UNIT_POS) + f32::cast_from(comptime!(i as u32)));
    }
    let x = Vec4::new(x);
    for _ in 0..rounds {
        #[unroll]
        for i in 0..CHAINS {
            chains[i] = fma(chains[i], x, x);
        }
    }
    let mut sum = Vec4::new(0.0f32);
    #[unroll]
    for i in 0..CHAINS {
        sum += chains[i];
    }
    sums[ABSOLUTE_POS] =
        sum.extract(0usize) + sum.extract(1usize) + sum.extract(2usize) + sum.extract(3usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::test_device::test_device;

    #[test]
    fn limits_are_those_of_a_computer() {
        let Some(device) = test_device() else { return };
        let ceilings = Ceilings::measure(&device, Duration::from_millis(20)).unwrap();
        assert!((1e7..1e14).contains(&ceilings.read_bytes_per_s), "{ceilings:?}");
        assert!((1e7..1e15).contains(&ceilings.f32_flops), "{ceilings:?}");
        assert_eq!((ceilings.bf16_flops, ceilings.threads), (None, None));
    }
}
