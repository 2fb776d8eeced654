//! Measured limits of a device, to compare the operations' rates with.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use burn::tensor::Device;

use crate::device::Place;
use crate::simd::{Isa, Kernel, LANES, Simd, prefetch_l2, sum_of};
use crate::threads::{for_each_piece, for_each_rows, num_threads};
use crate::{KernelError, aligned::AlignedBuf};

/// A device's limits. Those of the CPU are measured on the threads that kernels compute on, with
/// the instruction set in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceilings {
    /// Bytes a second that can be read from memory.
    pub read_bytes_per_s: f64,
    /// f32 operations a second, a fused multiply-add being two.
    pub f32_flops: f64,
    /// The same over bfloat16 weights by vectors. Tiles, where the processor has them, are faster.
    /// `None` on a GPU, whose kernels widen.
    pub bf16_flops: Option<f64>,
    /// The CPU's threads.
    pub threads: Option<usize>,
}

/// Bytes that are read: more than any cache holds.
const READ_BYTES: usize = 512 << 20;
/// Accumulators of the loops: enough to hide an instruction's latency.
const MANY: usize = 12;
/// Accumulators where a vector of [`LANES`] takes two or more registers.
const FEW: usize = 5;
/// Bytes that a thread reads at a time.
const PIECE_BYTES: usize = 4 << 20;
/// Distance between a thread's reads and its prefetches: with the hardware's alone, a stream is
/// slower.
const AHEAD_BYTES: usize = 4 << 10;
/// Rounds between two readings of the clock.
const ROUNDS: usize = 1 << 16;

impl Ceilings {
    /// Measures each limit for `duration` and returns the best rates, because a limit is never
    /// exceeded.
    ///
    /// # Errors
    /// A device without kernels, too little memory for the buffer to read, or an error of a GPU.
    pub fn measure(device: &Device, duration: Duration) -> Result<Self, KernelError> {
        match Place::of(device, "limits")? {
            Place::Cpu => Self::of_cpu(duration),
            #[cfg(feature = "gpu")]
            Place::Cube(device) => crate::cube::measure_ceilings(&device, duration),
        }
    }

    fn of_cpu(duration: Duration) -> Result<Self, KernelError> {
        let isa = Isa::active();
        let mut memory =
            AlignedBuf::<f32>::zeroed(READ_BYTES / size_of::<f32>(), "memory to read")?;
        // Each thread writes the part that it reads later, so that the system allocates it near the
        // thread.
        for_each_rows(&mut memory, LANES, |_, part| part.fill(1.0));
        let pieces: Vec<&[f32]> = memory.chunks(PIECE_BYTES / size_of::<f32>()).collect();
        let read = best(duration, || {
            for_each_piece(pieces.len(), usize::MAX, |i| {
                black_box(isa.run(Sum(pieces[i])));
            });
            READ_BYTES as f64
        });
        let threads = num_threads();
        let f32_flops = best(duration, || {
            for_each_piece(threads, usize::MAX, |_| {
                black_box(isa.run(Fma(black_box(0.5))));
            });
            threads as f64 * flops_of::<FmaCount>(isa)
        });
        let bf16_flops = best(duration, || {
            for_each_piece(threads, usize::MAX, |_| {
                black_box(isa.run(DotPairs(black_box(0.5))));
            });
            threads as f64 * flops_of::<DotCount>(isa)
        });
        let (bf16_flops, threads) = (Some(bf16_flops), Some(threads));
        Ok(Self { read_bytes_per_s: read, f32_flops, bf16_flops, threads })
    }
}

/// Returns the largest amount of work a second. `round` does some work and returns its amount.
fn best(duration: Duration, mut round: impl FnMut() -> f64) -> f64 {
    let begun = Instant::now();
    let mut best = 0.0_f64;
    while best == 0.0 || begun.elapsed() < duration {
        let started = Instant::now();
        let work = round();
        best = best.max(work / started.elapsed().as_secs_f64());
    }
    best
}

/// The sum of a slice: one load an element, and one addition a vector.
struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 8];
        let (vectors, _) = self.0.as_chunks::<LANES>();
        for eight in vectors.chunks_exact(8) {
            for line in (0..8 * LANES * size_of::<f32>()).step_by(64) {
                prefetch_l2(eight.as_ptr().cast::<u8>().wrapping_add(AHEAD_BYTES + line));
            }
            for (sum, vector) in sums.iter_mut().zip(eight) {
                *sum = s.add(*sum, s.load(vector));
            }
        }
        sums.into_iter().map(|sum| sum_of(s, sum)).sum()
    }
}

/// Multiply-adds that read nothing from memory.
struct Fma(f32);

impl Kernel for Fma {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        if S::TILE_VECTORS > MANY { fma::<S, MANY>(s, self.0) } else { fma::<S, FEW>(s, self.0) }
    }
}

#[inline(always)]
fn fma<S: Simd, const N: usize>(s: S, x: f32) -> f32 {
    let (x, one) = (s.splat(x), s.splat(1.0));
    let mut sums = [s.splat(0.0); N];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = s.fma(*sum, x, one);
        }
    }
    sums.into_iter().map(|sum| sum_of(s, sum)).sum()
}

/// Products of bfloat16 weights that lie in the nearest cache.
struct DotPairs(f32);

impl Kernel for DotPairs {
    type Output = f32;
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        if S::TILE_VECTORS > MANY { dots::<S, MANY>(s, self.0) } else { dots::<S, FEW>(s, self.0) }
    }
}

#[inline(always)]
fn dots<S: Simd, const N: usize>(s: S, x: f32) -> f32 {
    let weights = black_box([0x3f00_u16; 2 * LANES]);
    let pairs: [S::Pair; N] = std::array::from_fn(|i| s.pair(x, i as f32));
    let mut sums = [s.splat(0.0); N];
    for _ in 0..ROUNDS {
        for (sum, pair) in sums.iter_mut().zip(pairs) {
            *sum = s.dot_pair(*sum, &pair, &weights);
        }
    }
    sums.into_iter().map(|sum| sum_of(s, sum)).sum()
}

/// The amount of work in one run of a loop, on an instruction set.
trait Count {
    /// Operations of one step of one accumulator.
    const STEP: usize;
}

struct FmaCount;
struct DotCount;

impl Count for FmaCount {
    const STEP: usize = 2 * LANES;
}

impl Count for DotCount {
    const STEP: usize = 4 * LANES;
}

struct Accumulators;

impl Kernel for Accumulators {
    type Output = usize;
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        if S::TILE_VECTORS > MANY { MANY } else { FEW }
    }
}

fn flops_of<C: Count>(isa: Isa) -> f64 {
    (ROUNDS * isa.run(Accumulators) * C::STEP) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums are right on every instruction set, so the loops do the work that is counted.
    #[test]
    fn the_loops_compute() {
        let ones = vec![1.0; 4 * 8 * LANES];
        for isa in Isa::available() {
            assert_eq!(isa.run(Sum(&ones)), ones.len() as f32);
            let n = isa.run(Accumulators);
            // x ← x / 2 + 1 ends at 2.
            assert_eq!(isa.run(Fma(0.5)), (2 * LANES * n) as f32, "{}", isa.name());
            // Each step adds 0.5 · (0.5 + i) to every lane of accumulator i; f32 keeps it exact.
            let expected: f32 = (0..n).map(|i| 0.5 * (0.5 + i as f32)).sum::<f32>();
            let expected = expected * (ROUNDS * LANES) as f32;
            let is = isa.run(DotPairs(0.5));
            assert!((is / expected - 1.0).abs() < 1e-3, "{}: {is} {expected}", isa.name());
        }
    }

    #[test]
    fn limits_are_those_of_a_computer() {
        let ceilings = Ceilings::measure(&Device::flex(), Duration::from_millis(20)).unwrap();
        assert!((1e8..1e13).contains(&ceilings.read_bytes_per_s), "{ceilings:?}");
        assert!((1e8..1e15).contains(&ceilings.f32_flops), "{ceilings:?}");
        assert!((1e8..1e15).contains(&ceilings.bf16_flops.unwrap()), "{ceilings:?}");
    }
}
