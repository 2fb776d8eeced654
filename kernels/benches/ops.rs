//! Throughput of the hot operations except linear layers and attention: tokens, or rows of logits.
//!
//! `PLAYHOUSE_CPU_ISA=avx2 cargo bench -p playhouse-kernels --bench ops -- attention` measures
//! another instruction set. Linear layers have a bench of their own, `linear`.

use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use playhouse_kernels::sampling::{SamplingRow, SamplingScratch, sample};
use playhouse_kernels::{Activation, WeightVector, activate, layer_norm, rms_norm, swiglu};

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn tensor(rows: usize, width: usize) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values(rows * width), [rows, width]), &Device::flex())
}

fn bench_rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    let weight = WeightVector::new(values(4096), &Device::flex());
    let weight = weight.unwrap_or_else(|error| unreachable!("{error}"));
    for rows in [1, 512] {
        let x = tensor(rows, 4096);
        group.throughput(Throughput::Bytes((rows * 4096 * 8) as u64));
        group.bench_function(format!("rms_norm {rows}x4096"), |b| {
            b.iter(|| black_box(rms_norm(x.clone(), &weight, 1e-5)));
        });
        group.bench_function(format!("layer_norm {rows}x4096"), |b| {
            b.iter(|| black_box(layer_norm(x.clone(), Some(&weight), Some(&weight), 1e-5)));
        });
        for activation in [Activation::Gelu, Activation::GeluTanh] {
            group.bench_function(format!("{activation:?} {rows}x4096"), |b| {
                b.iter(|| black_box(activate(x.clone(), activation)));
            });
        }
        let x = tensor(rows, 2 * 4096);
        group.throughput(Throughput::Bytes((rows * 4096 * 12) as u64));
        group.bench_function(format!("swiglu {rows}x4096"), |b| {
            b.iter(|| black_box(swiglu(x.clone())));
        });
    }
    group.finish();
}

/// Measures one row of 151,936 logits, peaked as those of a language model.
fn bench_sampling(c: &mut Criterion) {
    let mut group = c.benchmark_group("sampling");
    let vocab = 151_936;
    let logits: Vec<f32> = (0..vocab).map(|i| 8.0 * ((i * i % 7919) as f32 * 0.11).sin()).collect();
    let default = SamplingRow::default();
    let cases = [
        ("greedy", SamplingRow { temperature: 0.0, ..default.clone() }),
        ("temperature", default.clone()),
        ("top_k 50", SamplingRow { top_k: 50, ..default.clone() }),
        ("top_p 0.9", SamplingRow { top_p: 0.9, ..default.clone() }),
        ("top_k 50 top_p 0.9", SamplingRow { top_k: 50, top_p: 0.9, ..default.clone() }),
        ("greedy, 5 logprobs", SamplingRow { temperature: 0.0, num_logprobs: Some(5), ..default }),
    ];
    let mut scratch = SamplingScratch::default();
    let mut row = logits.clone();
    group.throughput(Throughput::Elements(vocab as u64));
    for (name, params) in cases {
        group.bench_function(name, |b| {
            b.iter(|| {
                row.copy_from_slice(&logits);
                black_box(sample(&mut row, &params, &mut scratch))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench_rows, bench_sampling);
criterion_main!(benches);
