//! Products with activations that are not quantized, compared with f64 over the numbers that codes
//! stand for. Each row also has the same bytes in every batch.

use half::bf16;

use super::pack::OffsetKind;
use super::tests::{KINDS, Kind, matrix, run, values};
use super::{ActivationDtype, PackedQuantized, QuantizationScheme, reference};
use crate::simd::Isa;
use crate::{QuantizedMatrix, WeightView};

const FLOATS: [ActivationDtype; 2] = [ActivationDtype::F32, ActivationDtype::Bf16];

fn pack_for(matrix: &QuantizedMatrix, activations: ActivationDtype) -> PackedQuantized {
    PackedQuantized::ready_made(std::slice::from_ref(matrix), activations).unwrap()
}

/// Asserts that the error of the product is within `1e-5 · Σ|x w|`.
fn check(rows: usize, shape: [usize; 2], group: usize, kind: Kind) {
    let w = matrix(shape, group, kind, |x| x * 0.01);
    let [outputs, inputs] = shape;
    let x = values(rows * inputs, 1);
    let numbers: Vec<Vec<f64>> = (0..outputs).map(|o| reference::numbers(&w, o)).collect();
    for activations in FLOATS {
        let weight = pack_for(&w, activations);
        for isa in Isa::available() {
            let rounds = activations == ActivationDtype::Bf16 && isa.rounds_pairs();
            let kept = |x: f64| {
                if rounds { f64::from(bf16::from_f32(x as f32).to_f32()) } else { x }
            };
            let y = run(isa, &x, &weight);
            for (row, y) in x.chunks_exact(inputs).zip(y.chunks_exact(outputs)) {
                for (w, y) in numbers.iter().zip(y) {
                    let terms = w.iter().zip(row).map(|(w, x)| kept(*w) * kept(f64::from(*x)));
                    let (exact, magnitude) =
                        terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()));
                    // Where a number lies halfway between two of bf16, f32 may have chosen the
                    // other one.
                    let tie = if rounds { 1e-3 } else { 1e-5 };
                    let error = (f64::from(*y) - exact).abs();
                    let name = isa.name();
                    assert!(
                        error <= tie * magnitude,
                        "{name} {activations:?} {kind:?}: {y} {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn products_are_those_of_the_numbers() {
    for kind in KINDS {
        for rows in [1, 2, 5, 12, 13, 25, 40] {
            check(rows, [70, 96], 32, kind);
        }
        check(3, [1, 2], 2, kind);
        check(9, [33, 1000], 1000, kind);
        check(2, [40, 1024], 128, kind);
        check(1, [300, 1030], 10, kind);
        check(30, [130, 260], 130, kind);
    }
}

/// Weights whose factors f16 does not hold, with zero points that f16 would move.
#[test]
fn no_factor_is_rounded() {
    let kind = KINDS[6];
    assert_eq!(kind.offsets, OffsetKind::ZeroPoints);
    let w = matrix([32, 64], 32, kind, |x| x / 3.0);
    let weight = pack_for(&w, ActivationDtype::F32);
    for input in 0..64 {
        let mut x = vec![0.0; 64];
        x[input] = 1.0;
        for isa in Isa::available() {
            for (o, y) in run(isa, &x, &weight).into_iter().enumerate() {
                assert_eq!(y, w.row_f32(o)[input], "{}", isa.name());
            }
        }
    }
}

/// Weights that are quantized here, also with groups that do not divide the inputs and odd rows.
#[test]
fn weights_quantized_at_load_are_multiplied_as_numbers_too() {
    let schemes = [
        QuantizationScheme::Int8,
        QuantizationScheme::Int4 { group_size: 32 },
        QuantizationScheme::Int4 { group_size: 64 },
    ];
    for scheme in schemes {
        for inputs in [77, 266, 320] {
            let w = values(40 * inputs, 6);
            let parts = [WeightView::F32(&w)];
            let packed = PackedQuantized::quantize(&parts, [40, inputs], scheme).unwrap();
            let weight = packed.with_activations(ActivationDtype::F32);
            // Unit vectors return the numbers, and every row is a sum of them.
            let mut units = vec![0.0; inputs * inputs];
            units.iter_mut().step_by(inputs + 1).for_each(|x| *x = 1.0);
            let x = values(3 * inputs, 2);
            for isa in Isa::available() {
                let numbers = run(isa, &units, &weight);
                for (x, y) in x.chunks(inputs).zip(run(isa, &x, &weight).chunks(40)) {
                    for (o, y) in y.iter().enumerate() {
                        let terms = x.iter().zip(numbers[o..].iter().step_by(40));
                        let terms = terms.map(|(x, w)| f64::from(*x) * f64::from(*w));
                        let (exact, all) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
                        assert!(
                            (f64::from(*y) - exact).abs() <= 1e-5 * all,
                            "{scheme:?} {y} {exact}"
                        );
                    }
                }
                let near = numbers.iter().enumerate().all(|(i, near)| {
                    let (input, o) = (i / 40, i % 40);
                    (near - w[o * inputs + input]).abs() <= 0.2
                });
                assert!(near, "{scheme:?}");
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (inputs, outputs) = (480, 333);
    for (kind, group) in [(0, 32), (7, 96), (4, 48), (6, 480)] {
        let matrix: QuantizedMatrix = matrix([outputs, inputs], group, KINDS[kind], |x| x * 0.01);
        let x = values(64 * inputs, 4);
        for activations in FLOATS {
            let weight = pack_for(&matrix, activations);
            for isa in Isa::available() {
                let bits = |x: &[f32]| -> Vec<u32> {
                    run(isa, x, &weight).into_iter().map(f32::to_bits).collect()
                };
                let alone: Vec<Vec<u32>> = x.chunks_exact(inputs).map(bits).collect();
                for rows in (1..16).chain([24, 33, 64]) {
                    let order: Vec<usize> = (0..rows).map(|r| (r * 27 + 5) % 64).collect();
                    let batch = order.iter().flat_map(|r| &x[r * inputs..(r + 1) * inputs]);
                    let batch: Vec<f32> = batch.copied().collect();
                    for (y, r) in bits(&batch).chunks_exact(outputs).zip(order) {
                        assert!(y == alone[r], "{} {kind} {activations:?} {rows}", isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn a_non_finite_number_stays_in_its_row() {
    for activations in FLOATS {
        let weight = pack_for(&matrix([40, 64], 32, KINDS[6], |x| x), activations);
        for isa in Isa::available() {
            let mut x = values(14 * 64, 5);
            let good = run(isa, &x, &weight);
            x[3 * 64 + 40] = f32::NAN;
            for (r, (y, good)) in run(isa, &x, &weight).chunks(40).zip(good.chunks(40)).enumerate()
            {
                let as_expected = if r == 3 { y.iter().all(|y| y.is_nan()) } else { y == good };
                assert!(as_expected, "{} row {r}", isa.name());
            }
        }
    }
}
