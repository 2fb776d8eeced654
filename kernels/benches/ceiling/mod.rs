//! What the machine can do: the rate at which its threads read memory, and at which they multiply
//! and add in f32.

use std::cell::Cell;
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Memory that is read, beyond what caches hold.
const BYTES: usize = 1 << 30;

/// Read by each thread at a time.
const SLICE_BYTES: usize = 8 << 20;

/// Bytes ahead of a read that are asked for.
const AHEAD_BYTES: usize = 4096;

/// Steps of a measurement of arithmetic: about half a millisecond.
const STEPS: usize = 1 << 17;

/// Sums that do not wait for each other.
const CHAINS: usize = 12;

/// Measures with so many threads.
#[derive(Debug)]
pub(crate) struct Ceiling {
    threads: usize,
    memory: Vec<u64>,
    /// The slice that is read next.
    next: Cell<usize>,
}

impl Ceiling {
    /// For `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        let len = BYTES / size_of::<u64>();
        let mut memory = Vec::with_capacity(len);
        advise_huge_pages(&mut memory);
        memory.resize(len, 1);
        Self { threads, memory, next: Cell::new(0) }
    }

    /// Bytes a second that the threads read together.
    pub(crate) fn read_bytes_per_s(&self) -> f64 {
        let slices = BYTES / SLICE_BYTES;
        let first = self.next.get();
        self.next.set((first + self.threads) % slices);
        let memory = &self.memory;
        let seconds = self.on_threads(|thread| {
            let slice = (first + thread) % slices;
            let len = SLICE_BYTES / size_of::<u64>();
            black_box(read(&memory[slice * len..(slice + 1) * len]));
        });
        (self.threads * SLICE_BYTES) as f64 / seconds
    }

    /// f32 operations a second of all threads, a fused multiply-add being two.
    pub(crate) fn flops_per_s(&self) -> f64 {
        let lanes = black_box(LANES);
        let seconds = self.on_threads(|_| {
            black_box(multiply_add(STEPS));
        });
        (self.threads * STEPS * CHAINS * lanes * 2) as f64 / seconds
    }

    /// The mean time of `work` on each thread at once.
    fn on_threads(&self, work: impl Fn(usize) + Sync) -> f64 {
        let work = &work;
        let timed = move |thread| {
            let began = Instant::now();
            work(thread);
            began.elapsed().as_secs_f64()
        };
        let sum: f64 = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|thread| scope.spawn(move || timed(thread))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
        });
        sum / self.threads as f64
    }
}

/// Has memory that was not touched yet come in huge pages, as that of weights does.
#[cfg(target_os = "linux")]
fn advise_huge_pages(memory: &mut Vec<u64>) {
    const PAGE: usize = 2 << 20;
    let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize + memory.capacity() * size_of::<u64>()) / PAGE * PAGE;
    // SAFETY: whole pages of our own memory; the advice changes no content.
    unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &mut Vec<u64>) {}

/// Lanes of the arithmetic that is measured.
#[cfg(target_arch = "x86_64")]
const LANES: usize = 16;
/// Lanes of the arithmetic that is measured.
#[cfg(not(target_arch = "x86_64"))]
const LANES: usize = 4;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn read(memory: &[u64]) -> i64 {
        let mut sums = [_mm512_setzero_si512(); 4];
        for lines in memory.as_chunks::<32>().0 {
            for (j, sum) in sums.iter_mut().enumerate() {
                let line = lines[8 * j..].as_ptr();
                // SAFETY: `line` is the first of eight words; a prefetch never faults.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(line.cast::<i8>().wrapping_add(super::AHEAD_BYTES));
                    *sum = _mm512_xor_si512(*sum, _mm512_loadu_si512(line.cast()));
                }
            }
        }
        let mut total = 0;
        for sum in sums {
            total ^= _mm512_reduce_add_epi64(sum);
        }
        total
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn multiply_add_512(steps: usize, start: &[f32; super::CHAINS]) -> f32 {
        let mut sums = [_mm512_setzero_ps(); super::CHAINS];
        for (sum, start) in sums.iter_mut().zip(start) {
            *sum = _mm512_set1_ps(*start);
        }
        let (a, b) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += _mm512_reduce_add_ps(sum);
        }
        total
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn multiply_add_256(steps: usize, start: &[f32; super::CHAINS]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); super::CHAINS];
        for (sum, start) in sums.iter_mut().zip(start) {
            *sum = _mm256_set1_ps(*start);
        }
        let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
        // Half as many lanes as is counted: twice the steps.
        for _ in 0..2 * steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        let mut total = _mm256_setzero_ps();
        for sum in sums {
            total = _mm256_add_ps(total, sum);
        }
        _mm256_cvtss_f32(total)
    }
}

fn read(memory: &[u64]) -> i64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: detected just now.
        return unsafe { x86::read(memory) };
    }
    memory.iter().fold(0, |sum, x| sum ^ *x as i64)
}

fn multiply_add(steps: usize) -> f32 {
    let start: [f32; CHAINS] = std::array::from_fn(|i| black_box(i as f32));
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: detected just now.
            return unsafe { x86::multiply_add_512(steps, &start) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: detected just now.
            return unsafe { x86::multiply_add_256(steps, &start) };
        }
    }
    // What the compiler makes of fused multiply-adds on `LANES` lanes.
    let mut sums: [[f32; LANES]; CHAINS] = start.map(|x| [x; LANES]);
    for _ in 0..steps {
        for sum in sums.as_flattened_mut() {
            *sum = sum.mul_add(0.999, 0.001);
        }
    }
    sums.as_flattened().iter().sum()
}
