//! Throughput of linear layers by the bits of their weights, on the shapes of a model of 0.6 B
//! parameters. The unit is bytes of weights where one row streams them, else multiply-adds.
//!
//! `PLAYHOUSE_CPU_ISA=avx2 cargo bench -p playhouse-kernels --bench quantized` measures another
//! instruction set.

use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use playhouse_kernels::{
    KernelError, LinearWeight, QuantizationScheme, WeightDtype, WeightView, linear,
};

/// Inputs and outputs of qkv, o, gate and up, and down of Qwen3-0.6B.
const SHAPES: [[usize; 2]; 4] = [[1024, 4096], [2048, 1024], [1024, 6144], [3072, 1024]];

/// Number of weights that are streamed: more than caches hold.
const STREAMED_WEIGHTS: usize = 1 << 28;

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn tensor(rows: usize, width: usize) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values(rows * width), [rows, width]), &Device::flex())
}

/// The form in which weights are kept.
#[derive(Clone, Copy)]
enum Kept {
    As(WeightDtype),
    Quantized(QuantizationScheme),
}

const FORMATS: [(&str, Kept); 4] = [
    ("bf16", Kept::As(WeightDtype::Bf16)),
    ("int8", Kept::Quantized(QuantizationScheme::Int8)),
    ("int4 of 32", Kept::Quantized(QuantizationScheme::Int4 { group_size: 32 })),
    ("int4 of 128", Kept::Quantized(QuantizationScheme::Int4 { group_size: 128 })),
];

fn pack(kept: Kept, [inputs, outputs]: [usize; 2]) -> LinearWeight {
    let w = values(inputs * outputs);
    let parts = [WeightView::F32(&w)];
    let device = Device::flex();
    let packed: Result<_, KernelError> = match kept {
        Kept::As(dtype) => LinearWeight::pack(&parts, inputs, dtype, &device),
        Kept::Quantized(scheme) => LinearWeight::quantize(&parts, inputs, scheme, &device),
    };
    packed.unwrap_or_else(|error| unreachable!("{error}"))
}

/// Measures one layer after the other, more of them than caches hold.
fn bench_one_row(c: &mut Criterion) {
    let mut group = c.benchmark_group("1 row");
    group.sample_size(10);
    for (name, kept) in FORMATS {
        let layer: usize = SHAPES.iter().map(|[inputs, outputs]| inputs * outputs).sum();
        let layers = STREAMED_WEIGHTS.div_ceil(layer);
        let weights: Vec<LinearWeight> =
            (0..layers).flat_map(|_| SHAPES).map(|shape| pack(kept, shape)).collect();
        let bytes: usize = weights.iter().map(LinearWeight::size_bytes).sum();
        let x = SHAPES.map(|[inputs, _]| tensor(1, inputs));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{name}, {} MB", bytes / 1_000_000), |b| {
            b.iter(|| {
                for (weight, x) in weights.iter().zip(x.iter().cycle()) {
                    drop(black_box(linear(x.clone(), weight, None)));
                }
            });
        });
    }
    group.finish();
}

fn bench_many_rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("multiply-adds");
    for rows in [8, 32, 512] {
        for shape @ [inputs, outputs] in SHAPES {
            for (name, kept) in FORMATS {
                let (weight, x) = (pack(kept, shape), tensor(rows, inputs));
                group.throughput(Throughput::Elements((rows * inputs * outputs) as u64));
                group.bench_function(format!("{name}/{rows}x{inputs}x{outputs}"), |b| {
                    b.iter(|| black_box(linear(x.clone(), &weight, None)));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, bench_one_row, bench_many_rows);
criterion_main!(benches);
