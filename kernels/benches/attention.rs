//! Attention beside the limits of the machine: bytes of keys and values a second beside plain reads
//! of as much memory, and multiply-adds a second beside fused multiply-adds on registers. Both
//! sides take turns in one run. Each is charged the processor time that it uses, so that the shares
//! are right on a busy machine too. Rates are those of one thread.
//!
//! `cargo bench -p playhouse-kernels --profile dev --bench attention -- decode` runs the cases
//! whose names contain "decode". `PLAYHOUSE_CPU_ISA=avx2` chooses another instruction set.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{
    AttentionMetadata, AttentionParams, KvCache, KvCacheShape, KvDtype, ThreadPool, cpu_isa,
    paged_attention, reshape_and_cache,
};
use rayon::prelude::*;

/// Least bytes of the keys and values of a decode case: more than caches hold.
const COLD_BYTES: usize = 512 << 20;
const BLOCK_SIZE: usize = 16;
/// Number of turns of each side.
const TURNS: usize = 9;

/// Heads of a model's layer.
#[derive(Clone, Copy)]
struct Heads {
    name: &'static str,
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
}

const HEADS: [Heads; 2] = [
    Heads { name: "32/8x128", num_heads: 32, num_kv_heads: 8, head_dim: 128 },
    Heads { name: "16/8x128", num_heads: 16, num_kv_heads: 8, head_dim: 128 },
];

const DTYPES: [(&str, KvDtype); 3] =
    [("bf16", KvDtype::Bf16), ("f32", KvDtype::F32), ("int8", KvDtype::Int8)];

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{}, {} threads, medians of {TURNS}", cpu_isa(), rayon::current_num_threads());
    for heads in HEADS {
        for (dtype_name, dtype) in DTYPES {
            for (seqs, len) in [(1, 4096), (16, 1024), (32, 256)] {
                let name = format!("decode {dtype_name} {} {seqs} of {len}", heads.name);
                if name.contains(&filter) {
                    decode(&name, heads, dtype, seqs, len);
                }
            }
            for len in [512, 2048] {
                let name = format!("prefill {dtype_name} {} {len}", heads.name);
                if name.contains(&filter) {
                    prefill(&name, heads, dtype, len);
                }
            }
        }
    }
}

/// Measures one token a sequence, in as many layers as fill [`COLD_BYTES`].
fn decode(name: &str, heads: Heads, dtype: KvDtype, seqs: usize, len: usize) {
    let layer_bytes = shape(heads, 1, seqs * len).bytes(dtype);
    let shape = shape(heads, COLD_BYTES.div_ceil(layer_bytes), seqs * len);
    let cache = filled(shape, dtype);
    let memory = vec![1_u64; shape.bytes(dtype) / 8];
    let meta = batch(seqs, len, 1);
    let (q, params) = (tensor(seqs, heads.num_heads * heads.head_dim), params(heads));
    let attend = || {
        for layer in 0..shape.num_layers {
            drop(black_box(paged_attention(q.clone(), cache.layer(layer), &meta, &params)));
        }
    };
    let [ours, reads] = alternate(attend, || {
        black_box(read_all(&memory));
    });
    let rate = |seconds: f64| shape.bytes(dtype) as f64 / seconds / 1e9;
    report(name, rate(ours), rate(reads), "GB/s");
}

/// Measures one prompt in one step.
fn prefill(name: &str, heads: Heads, dtype: KvDtype, len: usize) {
    const FMAS: usize = 1 << 27;
    let shape = shape(heads, 1, len);
    let cache = filled(shape, dtype);
    let meta = batch(1, len, len);
    let (q, params) = (tensor(len, heads.num_heads * heads.head_dim), params(heads));
    let attend = || drop(black_box(paged_attention(q.clone(), cache.layer(0), &meta, &params)));
    let threads = rayon::current_num_threads();
    let [ours, peak] = alternate(attend, || {
        rayon::broadcast(|_| black_box(multiply_adds(FMAS)));
    });
    let pairs = len * (len + 1) / 2;
    let flops = (4 * pairs * heads.num_heads * heads.head_dim) as f64;
    report(name, flops / ours / 1e9, (2 * FMAS * threads) as f64 / peak / 1e9, "GFLOP/s");
}

fn report(name: &str, ours: f64, limit: f64, unit: &str) {
    println!("{name:36} {ours:8.1} of {limit:7.1} {unit}: {:5.1} %", 100.0 * ours / limit);
}

/// Returns the median processor seconds of both sides, which take turns.
fn alternate(first: impl Fn() + Sync, second: impl Fn() + Sync + Send) -> [f64; 2] {
    let mut times = [const { Vec::new() }; 2];
    let timed = |side: &(dyn Fn() + Sync)| {
        let start = processor_time();
        side();
        (processor_time() - start).as_secs_f64()
    };
    ThreadPool::common().install(|| {
        for turn in 0..=TURNS {
            let taken = [timed(&first), timed(&second)];
            // The first turn warms up.
            if turn > 0 {
                times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
            }
        }
    });
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

/// Returns the processor time that this process has used so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock for processor time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn shape(heads: Heads, num_layers: usize, tokens: usize) -> KvCacheShape {
    let Heads { num_kv_heads, head_dim, .. } = heads;
    let num_blocks = tokens / BLOCK_SIZE;
    KvCacheShape {
        num_layers,
        num_blocks,
        block_size: BLOCK_SIZE,
        num_kv_heads,
        head_dim,
        value_head_dim: head_dim,
        values_in_keys: false,
        state_len: 0,
    }
}

fn params(heads: Heads) -> AttentionParams {
    AttentionParams::new(heads.num_heads, 0.09)
}

/// Returns a cache with every slot written, because unwritten pages are all one page of zeros.
fn filled(shape: KvCacheShape, dtype: KvDtype) -> KvCache {
    let mut cache =
        KvCache::new(shape, dtype, &Device::flex()).unwrap_or_else(|error| unreachable!("{error}"));
    let slots: Vec<u32> = (0..shape.num_slots() as u32).collect();
    let rows = tensor(slots.len(), shape.num_kv_heads * shape.head_dim);
    for layer in 0..shape.num_layers {
        reshape_and_cache(rows.clone(), rows.clone(), cache.layer_mut(layer), &slots);
    }
    cache
}

fn tensor(rows: usize, width: usize) -> Tensor<2> {
    let values: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin()).collect();
    Tensor::from_data(TensorData::new(values, [rows, width]), &Device::flex())
}

/// Returns a batch of `seqs` sequences of `len` tokens, of which the last `queries` are new. Blocks
/// lie scattered, as in a cache in use.
fn batch(seqs: usize, len: usize, queries: usize) -> AttentionMetadata {
    let blocks = len / BLOCK_SIZE;
    let total = seqs * blocks;
    // A stride that is odd visits every block where their number is a power of two.
    let scattered = |i: usize| (i * 37 % total) as u32;
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
    for seq in 0..seqs {
        let table: Vec<u32> = (seq * blocks..(seq + 1) * blocks).map(scattered).collect();
        for p in len - queries..len {
            meta.positions.push(p as u32);
            let slot = table[p / BLOCK_SIZE] as usize * BLOCK_SIZE + p % BLOCK_SIZE;
            meta.slot_mapping.push(slot as u32);
        }
        meta.seq_lens.push(len as u32);
        meta.query_start_loc.push(meta.positions.len() as u32);
        meta.block_tables.push(table);
    }
    meta
}

/// Reads all of `memory`, over the threads.
fn read_all(memory: &[u64]) -> u64 {
    let read = |piece: &[u64]| {
        let mut sums = [0_u64; 32];
        for line in piece.as_chunks::<32>().0 {
            sums.iter_mut().zip(line).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    };
    memory.par_chunks(1 << 17).map(read).reduce(|| 0, u64::wrapping_add)
}

/// Computes `count` fused multiply-adds of f32 on registers, on this thread.
fn multiply_adds(count: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: detected.
            return unsafe { multiply_adds_avx512(count) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: detected.
            return unsafe { multiply_adds_avx2(count) };
        }
    }
    let (a, b, mut sums) = (black_box(0.999), black_box(0.001), [1.0_f32; 32]);
    for _ in 0..count / 32 {
        sums.iter_mut().for_each(|sum| *sum = *sum * a + b);
    }
    sums.into_iter().sum()
}

/// Independent sums: at least an instruction's latency times the number of units.
#[cfg(target_arch = "x86_64")]
const SUMS: usize = 12;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_adds_avx512(count: usize) -> f32 {
    use std::arch::x86_64::*;
    let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut sums = [_mm512_set1_ps(1.0); SUMS];
    for _ in 0..count / 16 / SUMS {
        sums.iter_mut().for_each(|sum| *sum = _mm512_fmadd_ps(*sum, a, b));
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_adds_avx2(count: usize) -> f32 {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    let mut sums = [_mm256_set1_ps(1.0); SUMS];
    for _ in 0..count / 8 / SUMS {
        sums.iter_mut().for_each(|sum| *sum = _mm256_fmadd_ps(*sum, a, b));
    }
    sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
}
