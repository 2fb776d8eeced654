//! Comparisons with the reference.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

fn normed(isa: Isa, x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    cpu::normed(isa, x, weight, eps, &mut y);
    y
}

proptest! {
    #[test]
    fn rows_of_any_width_agree_with_the_reference(
        width in 1usize..300,
        rows in 0usize..5,
        scale in 0.01f32..100.0,
    ) {
        let x: Vec<f32> =
            (0..rows * width).map(|i| (i as f32 * 1.3).sin() * scale).collect();
        let weight: Vec<f32> = (0..width).map(|i| 0.5 + (i as f32).cos()).collect();
        let exact = reference::rms_norm(&x, &weight, 1e-5);
        for isa in Isa::available() {
            let y = normed(isa, &x, &weight, 1e-5);
            prop_assert_eq!(y.len(), exact.len());
            for (y, exact) in y.iter().zip(&exact) {
                prop_assert!((f64::from(*y) - exact).abs() < 1e-6 * (1.0 + exact.abs()) * 4.0);
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (width, rows) = (1000, 200);
    let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.3).sin()).collect();
    let weight = vec![1.5; width];
    for isa in Isa::available() {
        let all = normed(isa, &x, &weight, 1e-6);
        for (y, row) in all.chunks_exact(width).zip(x.chunks_exact(width)) {
            assert_eq!(y, normed(isa, row, &weight, 1e-6));
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
    for isa in Isa::available() {
        let [mut y, mut sum] = [(); 2].map(|()| vec![f32::NAN; x.len()]);
        cpu::add_normed(isa, &x, &residual, &weight, 1e-6, [&mut y, &mut sum]);
        assert_eq!(sum, expected);
        assert_eq!(y, normed(isa, &expected, &weight, 1e-6));
    }
}

#[test]
fn the_residual_is_added_first_and_returned() {
    let device = Device::flex();
    let tensor = |x: [f32; 4]| Tensor::<2>::from_data(TensorData::new(x.to_vec(), [2, 2]), &device);
    let weight = WeightVector::new(vec![1.0, 2.0], &device).unwrap();
    let (x, residual) = ([1.0, 2.0, 3.0, 4.0], [0.5, -1.0, 2.0, 0.0]);
    let (normed, sum) = add_rms_norm(tensor(x), Some(tensor(residual)), &weight, 1e-6);
    let expected = [1.5, 1.0, 5.0, 4.0];
    assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), expected);
    let (again, first) = add_rms_norm(tensor(expected), None, &weight, 1e-6);
    assert_eq!(normed.clone().into_data(), again.into_data());
    assert_eq!(first.into_data().try_to_vec::<f32>().unwrap(), expected);
    assert_eq!(normed.into_data(), rms_norm(tensor(expected), &weight, 1e-6).into_data());
}
