//! Linear layers in the shapes of Qwen3-0.6B, beside what the machine can do: GB/s of weights, and
//! GFLOP/s (a multiply-add is two).
//!
//! `cargo bench -p playhouse-kernels --bench linear -- [THREADS]`; `PLAYHOUSE_CPU_ISA=avx2` in front
//! measures another instruction set. The ceilings are measured between the rows of the table, since
//! a shared machine is not the same from one second to the next; each figure is the best quarter.
#![allow(clippy::print_stdout)] // a table is what this is for

mod ceiling;

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use ceiling::Ceiling;
use playhouse_kernels::{LinearWeight, ThreadPool, WeightDtype, WeightView, cpu_isa, linear};

/// Name, inputs, outputs.
const SHAPES: [(&str, usize, usize); 5] = [
    ("qkv", 1024, 4096),
    ("o", 2048, 1024),
    ("gate_up", 1024, 6144),
    ("down", 3072, 1024),
    ("lm_head", 1024, 151_936),
];
const ROWS: [usize; 5] = [1, 8, 32, 128, 512];

/// Weights that are read in turn, so that none is found in a cache.
const POOL_BYTES: usize = 768 << 20;

/// Times a figure is taken.
const SAMPLES: usize = 24;

fn main() {
    // Under `cargo test` there is nothing to check here.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let asked = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let pool = match asked {
        None => ThreadPool::common(),
        Some(threads) => ThreadPool::new(threads, false).unwrap_or_else(|e| unreachable!("{e}")),
    };
    let ceiling = Ceiling::new(pool.num_threads());
    println!("{} on {} threads", cpu_isa(), pool.num_threads());
    println!(
        "{:<5} {:<8} {:>4} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "", "", "rows", "time", "GB/s", "of read", "GFLOP/s", "of f32"
    );
    for (name, dtype) in [("bf16", WeightDtype::Bf16), ("f32", WeightDtype::F32)] {
        for (shape, inputs, outputs) in SHAPES {
            pool.install(|| table(name, dtype, shape, [inputs, outputs], &ceiling));
        }
    }
}

/// A shape's rows of the table.
fn table(
    name: &str,
    dtype: WeightDtype,
    shape: &str,
    [inputs, outputs]: [usize; 2],
    ceiling: &Ceiling,
) {
    let device = Device::flex();
    let values = |count: usize| (0..count).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
    let w = values(inputs * outputs);
    let bytes = w.len() * dtype.size_bytes();
    let weights: Vec<LinearWeight> = (0..POOL_BYTES.div_ceil(bytes))
        .map(|_| LinearWeight::pack(&[WeightView::F32(&w)], inputs, dtype, &device))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| unreachable!("{error}"));
    drop(w);
    let mut next = weights.iter().cycle();
    for rows in ROWS {
        let x = TensorData::new(values(rows * inputs), [rows, inputs]);
        let x = Tensor::<2>::from_data(x, &device);
        let (mut seconds, mut read, mut peak) = (Vec::new(), Vec::new(), Vec::new());
        let samples = if rows * outputs > 1 << 22 { 4 } else { SAMPLES };
        for weight in next.by_ref().take(samples) {
            let began = Instant::now();
            black_box(linear(x.clone(), weight, None));
            seconds.push(began.elapsed().as_secs_f64());
            read.push(1.0 / ceiling.read_bytes_per_s());
            peak.push(1.0 / ceiling.flops_per_s());
        }
        let (seconds, read, peak) = (quarter(seconds), 1.0 / quarter(read), 1.0 / quarter(peak));
        let bandwidth = bytes as f64 / seconds;
        let flops = (2 * rows * inputs * outputs) as f64 / seconds;
        println!(
            "{name:<5} {shape:<8} {rows:>4} {:>6.2} ms {:>8.1} {:>7.0}% {:>8.1} {:>7.0}%",
            seconds * 1e3,
            bandwidth / 1e9,
            100.0 * bandwidth / read,
            flops / 1e9,
            100.0 * flops / peak
        );
    }
}

/// The time that a quarter of the samples stayed within.
fn quarter(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 4]
}
