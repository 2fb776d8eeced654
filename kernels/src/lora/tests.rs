//! Comparisons with the reference on ragged shapes. A row has the same bytes in every batch.

use burn::tensor::{Device, TensorData};
use half::bf16;
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

/// Returns reproducible values in (-1, 1).
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// One pair of an adapter of a test.
#[derive(Debug, Clone)]
struct Pair {
    a: Vec<f32>,
    b: Vec<f32>,
    rank: usize,
    first_output: usize,
}

const SCALE: f32 = 1.7;

fn pair(rank: usize, inputs: usize, outputs: std::ops::Range<usize>, seed: u32) -> Pair {
    let (a, b) = (values(rank * inputs, seed), values(rank * outputs.len(), seed + 1));
    Pair { a, b, rank, first_output: outputs.start }
}

fn pack(pairs: &[Pair], shape: [usize; 2], dtype: WeightDtype, device: &Device) -> LoraWeights {
    let pairs: Vec<LoraPair<'_>> = pairs
        .iter()
        .map(|Pair { a, b, rank, first_output }| LoraPair {
            a,
            b,
            rank: *rank,
            scale: SCALE,
            first_output: *first_output,
        })
        .collect();
    LoraWeights::pack(&pairs, shape, dtype, device).unwrap()
}

/// Checks one row of results: y was 0.5 everywhere.
fn check_row(y: &[f32], x: &[f32], pairs: &[Pair], dtype: WeightDtype, what: &str) {
    let mut exact = vec![0.5; y.len()];
    let mut magnitude = vec![1.0; y.len()];
    let stored = |values: &[f32]| -> Vec<f32> {
        match dtype {
            WeightDtype::F32 => values.to_vec(),
            _ => values.iter().map(|x| bf16::from_f32(*x).to_f32()).collect(),
        }
    };
    let absolute = |values: &[f32]| values.iter().map(|x| x.abs()).collect::<Vec<_>>();
    for pair in pairs {
        let (a, b) = (stored(&pair.a), stored(&pair.b));
        let added = reference::product(x, &a, &b, pair.rank, SCALE);
        let most = reference::product(&absolute(x), &absolute(&a), &absolute(&b), pair.rank, SCALE);
        for (i, (added, most)) in added.into_iter().zip(most).enumerate() {
            exact[pair.first_output + i] += added;
            magnitude[pair.first_output + i] += most;
        }
    }
    for ((y, exact), magnitude) in y.iter().zip(exact).zip(magnitude) {
        assert!((f64::from(*y) - exact).abs() < 1e-5 * magnitude, "{what}: {y} {exact}");
    }
}

fn run(isa: Isa, x: &[f32], inputs: usize, segments: &[LoraSegment<'_>], out: usize) -> Vec<f32> {
    let mut y = vec![0.5; x.len() / inputs * out];
    cpu::add(isa, &mut y, x, segments);
    y
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn many_adapters_in_one_batch_agree_with_the_reference(
        inputs in 1usize..150,
        widths in prop::collection::vec(1usize..70, 1..4),
        ranks in prop::collection::vec(1usize..20, 1..4),
        owners in prop::collection::vec(0usize..4, 0..40),
        is_bf16: bool,
    ) {
        let dtype = if is_bf16 { WeightDtype::Bf16 } else { WeightDtype::F32 };
        let out: usize = widths.iter().sum();
        // The last module has no matrices where there are several modules.
        let adapters: Vec<Vec<Pair>> = ranks.iter().enumerate().map(|(index, rank)| {
            let mut first = 0;
            let ranges = widths.iter().map(|width| { first += width; first - width..first });
            let count = widths.len().max(2) - 1;
            ranges.take(count).enumerate().map(|(i, outputs)| {
                pair(rank + i, inputs, outputs, (10 * index + 2 * i) as u32)
            }).collect()
        }).collect();
        let packed: Vec<LoraWeights> = adapters.iter()
            .map(|pairs| pack(pairs, [out, inputs], dtype, &Device::flex())).collect();
        let rows: Vec<Vec<u32>> = (0..packed.len()).map(|owner| {
            (0..owners.len() as u32).filter(|row| owners[*row as usize] == owner).collect()
        }).collect();
        let segments: Vec<LoraSegment<'_>> = packed.iter().zip(&rows)
            .map(|(weights, rows)| LoraSegment { weights, rows }).collect();
        let x = values(owners.len() * inputs, 77);
        for isa in Isa::available() {
            let y = run(isa, &x, inputs, &segments, out);
            for (row, owner) in owners.iter().enumerate() {
                let (x, y) = (&x[row * inputs..][..inputs], &y[row * out..][..out]);
                match adapters.get(*owner) {
                    Some(pairs) => check_row(y, x, pairs, dtype, isa.name()),
                    None => assert!(y.iter().all(|y| *y == 0.5), "a row of no adapter changed"),
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (inputs, out, all) = (259, 130, 200);
    let x = values(all * inputs, 4);
    for isa in Isa::available() {
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            let adapters = [(5, 8), (16, 9)].map(|(rank, seed)| {
                let pairs =
                    [pair(rank, inputs, 0..64, seed), pair(rank, inputs, 64..130, seed + 2)];
                pack(&pairs, [out, inputs], dtype, &Device::flex())
            });
            let alone = |row: usize| {
                let weights = &adapters[row % 2];
                let x = &x[row * inputs..][..inputs];
                run(isa, x, inputs, &[LoraSegment { weights, rows: &[0] }], out)
            };
            for count in [2, 3, 7, 31, 200] {
                let rows = |owner: u32| -> Vec<u32> {
                    (0..count as u32).filter(|row| row % 2 == owner).collect()
                };
                let (even, odd) = (rows(0), rows(1));
                let segments = [
                    LoraSegment { weights: &adapters[0], rows: &even },
                    LoraSegment { weights: &adapters[1], rows: &odd },
                ];
                let y = run(isa, &x[..count * inputs], inputs, &segments, out);
                for (row, y) in y.chunks_exact(out).enumerate() {
                    assert_eq!(bits(y), bits(&alone(row)), "{}: row {row}", isa.name());
                }
            }
        }
    }
}

#[test]
fn tensors_of_the_cpu_are_changed_in_their_rows_alone() {
    let device = Device::flex();
    let pairs = [pair(2, 5, 3..7, 1)];
    let weights = pack(&pairs, [7, 5], WeightDtype::F32, &device);
    let x = values(3 * 5, 3);
    let tensor = |data: Vec<f32>, width: usize| {
        let rows = data.len() / width;
        Tensor::<2>::from_data(TensorData::new(data, [rows, width]), &device)
    };
    let segments = [LoraSegment { weights: &weights, rows: &[2, 0] }];
    let y = add_lora(tensor(vec![0.5; 21], 7), tensor(x.clone(), 5), &segments);
    let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
    assert_eq!(y[7..14], [0.5; 7]);
    assert_eq!(y[..3], [0.5; 3]);
    check_row(&y[14..], &x[10..], &pairs, WeightDtype::F32, "row 2");
    let y = set_rows(tensor(vec![0.0; 6], 2), tensor(vec![1.0, 2.0, 3.0, 4.0], 2), &[2, 0]);
    let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
    assert_eq!(y, [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]);
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    let refused = |pairs: &[LoraPair<'_>]| {
        let packed = LoraWeights::pack(pairs, [4, 3], WeightDtype::F32, &Device::flex());
        packed.map(|_| ()).unwrap_err().to_string()
    };
    let (a, b) = ([0.0; 6], [0.0; 8]);
    let good = LoraPair { a: &a, b: &b, rank: 2, scale: 1.0, first_output: 0 };
    assert!(refused(&[]).contains("pairs"));
    assert!(refused(&[LoraPair { a: &a[1..], ..good }]).contains("pairs[0].a"));
    assert!(refused(&[LoraPair { b: &b[1..], ..good }]).contains("pairs[0].b"));
    assert!(refused(&[LoraPair { first_output: 1, ..good }]).contains("outputs up to 4"));
    assert!(refused(&[LoraPair { rank: 0, ..good }]).contains("rank"));
}
