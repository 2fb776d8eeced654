//! Comparisons with the reference.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::cpu::Norm;
use super::*;
use crate::simd::Isa;

fn normed(isa: Isa, x: &[f32], norm: Norm<'_>) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    cpu::normed(isa, x, norm, &mut y);
    y
}

proptest! {
    #[test]
    fn rows_of_any_width_agree_with_the_reference(
        width in 1usize..300,
        rows in 0usize..5,
        scale in 0.01f32..100.0,
        offset in -3.0f32..3.0,
        has_weight: bool,
        has_bias: bool,
    ) {
        let x: Vec<f32> =
            (0..rows * width).map(|i| ((i as f32 * 1.3).sin() + offset) * scale).collect();
        let weight: Vec<f32> = (0..width).map(|i| 0.5 + (i as f32).cos()).collect();
        let bias: Vec<f32> = (0..width).map(|i| (i as f32 * 0.7).sin()).collect();
        let (weight, bias) = (has_weight.then_some(&weight[..]), has_bias.then_some(&bias[..]));
        let exact = reference::layer_norm(&x, width, weight, bias, 1e-5);
        for isa in Isa::available() {
            let y = normed(isa, &x, Norm { features: width, weight, bias, eps: 1e-5 });
            prop_assert_eq!(y.len(), exact.len());
            for (y, exact) in y.iter().zip(&exact) {
                // A row of one or two elements may have a deviation of the size of its rounding.
                let bound = if width < 4 { 1e-3 } else { 2e-5 };
                let error = (f64::from(*y) - exact).abs();
                prop_assert!(error < bound * (1.0 + exact.abs()), "{}: {y} {exact}", isa.name());
            }
        }
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    let (width, rows) = (1000, 200);
    let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.3).sin()).collect();
    let (weight, bias) = (vec![1.5; width], vec![0.25; width]);
    let norm = Norm { features: width, weight: Some(&weight), bias: Some(&bias), eps: 1e-6 };
    for isa in Isa::available() {
        let all = normed(isa, &x, norm);
        for (y, row) in all.chunks_exact(width).zip(x.chunks_exact(width)) {
            assert_eq!(y, normed(isa, row, norm));
        }
    }
}

#[test]
fn sums_and_their_norms_equal_those_of_two_passes() {
    // Pieces of 16 rows, the last of 9, divided among the threads.
    let (width, rows) = (1000, 201);
    let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.3).sin()).collect();
    let residual: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.7).cos() * 3.0).collect();
    let weight: Vec<f32> = (0..width).map(|i| 0.5 + (i as f32).cos()).collect();
    let expected: Vec<f32> = x.iter().zip(&residual).map(|(x, y)| x + y).collect();
    let norm = Norm { features: width, weight: Some(&weight), bias: None, eps: 1e-6 };
    for isa in Isa::available() {
        let [mut y, mut sum] = [(); 2].map(|()| vec![f32::NAN; x.len()]);
        cpu::add_normed(isa, &x, &residual, norm, [&mut y, &mut sum]);
        assert_eq!(sum, expected);
        assert_eq!(y, normed(isa, &expected, norm));
        let (mut in_place, mut again) = (x.clone(), vec![f32::NAN; x.len()]);
        cpu::add_onto_normed(isa, &mut in_place, &residual, norm, &mut again);
        assert_eq!((in_place, again), (sum, y));
    }
}

#[test]
fn a_mean_far_from_zero_is_removed_exactly() {
    // The sum of squares alone would lose the deviations.
    let x: Vec<f32> = (0..64).map(|i| 4096.0 + (i % 4) as f32).collect();
    let exact = reference::layer_norm(&x, 64, None, None, 1e-5);
    for isa in Isa::available() {
        let y = normed(isa, &x, Norm { features: 64, weight: None, bias: None, eps: 1e-5 });
        for (y, exact) in y.iter().zip(&exact) {
            assert!((f64::from(*y) - exact).abs() < 1e-6, "{}: {y} {exact}", isa.name());
        }
    }
}

#[test]
fn the_residual_is_added_first_and_returned() {
    let device = Device::flex();
    let tensor = |x: [f32; 4]| Tensor::<2>::from_data(TensorData::new(x.to_vec(), [2, 2]), &device);
    let weight = WeightVector::new(vec![1.0, 2.0], &device).unwrap();
    let bias = WeightVector::new(vec![0.5, -0.5], &device).unwrap();
    let (weight, bias) = (Some(&weight), Some(&bias));
    let (x, residual) = ([1.0, 2.0, 3.0, 4.0], [0.5, -1.0, 2.0, 0.0]);
    let (normed, sum) = add_layer_norm(tensor(x), Some(tensor(residual)), weight, bias, 1e-6);
    let expected = [1.5, 1.0, 5.0, 4.0];
    assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), expected);
    let (again, first) = add_layer_norm(tensor(expected), None, weight, bias, 1e-6);
    assert_eq!(normed.clone().into_data(), again.into_data());
    assert_eq!(first.into_data().try_to_vec::<f32>().unwrap(), expected);
    assert_eq!(normed.into_data(), layer_norm(tensor(expected), weight, bias, 1e-6).into_data());
}
