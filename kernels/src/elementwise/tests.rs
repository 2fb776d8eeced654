//! Comparisons with the reference.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

fn tensor(data: &[f32], cols: usize) -> Tensor<2> {
    let shape = [data.len() / cols, cols];
    Tensor::from_data(TensorData::new(data.to_vec(), shape), &Device::flex())
}

fn values(x: Tensor<2>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

proptest! {
    #[test]
    fn maps_of_any_width_agree_with_the_reference(
        cols in 1usize..100,
        rows in 0usize..4,
        size in 0.001f32..300.0,
        parameter in 0.1f32..50.0,
    ) {
        let x: Vec<f32> = numbers(rows * cols, 1).iter().map(|x| x * size).collect();
        let maps = [ElementMap::Scale, ElementMap::SoftCap, ElementMap::Clamp];
        for map in maps.map(|map| map(parameter)) {
            let exact = reference::map(&x, map);
            for isa in Isa::available() {
                let mut y = x.clone();
                cpu::mapped(isa, &mut y, cols, map);
                for (y, exact) in y.iter().zip(&exact) {
                    let error = (f64::from(*y) - exact).abs();
                    let bound = 2e-6 * exact.abs();
                    prop_assert!(error <= bound, "{} {map:?}: {y} {exact}", isa.name());
                }
            }
        }
    }

    #[test]
    fn sums_of_any_width_agree_with_the_reference(
        cols in 1usize..100,
        rows in 0usize..4,
        factor in -3.0f32..3.0,
    ) {
        let (x, y) = (numbers(rows * cols, 1), numbers(rows * cols, 2));
        let exact = reference::add_scaled(&x, &y, factor);
        for isa in Isa::available() {
            let mut sum = x.clone();
            cpu::added(isa, &mut sum, &y, cols, factor);
            for (sum, exact) in sum.iter().zip(&exact) {
                prop_assert!((f64::from(*sum) - exact).abs() <= 1e-6, "{}", isa.name());
            }
            let mut sum = x.clone();
            cpu::added(isa, &mut sum, &y, cols, 1.0);
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            prop_assert_eq!(sum, expected, "a sum is rounded once");
        }
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    // Enough rows to be divided among the threads.
    let (rows, cols) = (200, 1001);
    let (x, y) = (numbers(rows * cols, 1), numbers(rows * cols, 2));
    let factors: Vec<f32> = (0..rows).map(|i| i as f32 * 0.01).collect();
    for isa in Isa::available() {
        let all = |x: &[f32], y: &[f32], factors: &[f32]| {
            let mut capped = x.to_vec();
            cpu::mapped(isa, &mut capped, cols, ElementMap::SoftCap(0.7));
            let mut sum = x.to_vec();
            cpu::added(isa, &mut sum, y, cols, 0.3);
            let mut scaled = x.to_vec();
            cpu::rows_scaled(isa, &mut scaled, cols, factors);
            [capped, sum, scaled]
        };
        let together = all(&x, &y, &factors);
        for row in 0..rows {
            let range = row * cols..(row + 1) * cols;
            let alone = all(&x[range.clone()], &y[range.clone()], &factors[row..=row]);
            for (together, alone) in together.iter().zip(&alone) {
                assert_eq!(&together[range.clone()], &alone[..], "{}", isa.name());
            }
        }
    }
}

#[test]
fn rows_have_their_own_factors() {
    let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2);
    assert_eq!(values(scale_rows(x, &[2.0, 0.0, -1.0])), [2.0, 4.0, 0.0, 0.0, -5.0, -6.0]);
}

#[test]
fn a_tensor_with_another_owner_is_not_written() {
    let x = tensor(&[1.0, -20.0, 3.0], 3);
    assert_eq!(values(clamp(x.clone(), 2.0)), [1.0, -2.0, 2.0]);
    assert_eq!(values(scale(x.clone(), 2.0)), [2.0, -40.0, 6.0]);
    assert_eq!(values(add(x.clone(), x.clone())), [2.0, -40.0, 6.0]);
    assert_eq!(values(add_scaled(x.clone(), x.clone(), -1.0)), [0.0; 3]);
    assert_eq!(values(scale_rows(x.clone(), &[3.0])), [3.0, -60.0, 9.0]);
    assert!((values(soft_cap(x.clone(), 4.0))[1] - 4.0 * (-5.0f32).tanh()).abs() < 1e-5);
    assert_eq!(values(x), [1.0, -20.0, 3.0]);
}

#[test]
fn part_of_wider_rows_is_read_where_it_lies() {
    let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
    assert_eq!(values(scale(x.clone().narrow(1, 1, 2), 10.0)), [20.0, 30.0, 50.0, 60.0]);
    assert_eq!(values(scale(x.narrow(0, 1, 1), 10.0)), [40.0, 50.0, 60.0]);
}

#[test]
fn a_nan_stays_and_an_infinity_is_limited() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for isa in Isa::available() {
        for map in [ElementMap::SoftCap(5.0), ElementMap::Clamp(5.0)] {
            let mut y = x;
            cpu::mapped(isa, &mut y, 3, map);
            assert!(y[0].is_nan(), "{} {map:?}", isa.name());
            assert_eq!(y[1..], [5.0, -5.0], "{} {map:?}", isa.name());
        }
    }
}

#[test]
fn a_gate_multiplies_its_row() {
    let gate = tensor(&[0.0, 200.0, -200.0], 1);
    let gated = values(gate_rows(tensor(&[2.0, 4.0, 1.0, 3.0, 5.0, 7.0], 2), gate));
    assert_eq!(gated, [1.0, 2.0, 1.0, 3.0, 0.0, 0.0]);
}
