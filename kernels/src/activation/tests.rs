//! Comparisons with the reference.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

/// Parameters near those of Apertus.
pub(super) const XIELU: Activation =
    Activation::XIelu { alpha_p: 0.8, alpha_n: 1.3, beta: 0.5, eps: -1e-6 };

pub(super) const ALL: [Activation; 17] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::Sigmoid,
    Activation::Identity,
    Activation::GeluClipped,
    Activation::LeakyRelu,
    Activation::Relu6,
    Activation::HardSwish,
    Activation::Mish,
    Activation::Tanh,
    Activation::Softplus,
    Activation::Laplace,
    XIELU,
];

/// Returns the largest error of `f(x)`, as stated in the module's documentation.
fn tolerance(activation: Activation, x: f32, exact: f64) -> f64 {
    let size = f64::from(x.abs());
    1e-30
        + match activation {
            Activation::Silu
            | Activation::Sigmoid
            | Activation::Mish
            | Activation::Tanh
            | Activation::Softplus => 1e-6 * exact.abs(),
            Activation::Relu
            | Activation::ReluSquared
            | Activation::Identity
            | Activation::Relu6 => 1e-7 * exact.abs(),
            // The slope is rounded, too.
            Activation::LeakyRelu => 2e-7 * exact.abs(),
            Activation::Gelu | Activation::GeluClipped => 5e-7 * size,
            Activation::HardSwish | Activation::Laplace => 2e-6 * exact.abs().max(1.0),
            Activation::GeluTanh | Activation::QuickGelu => 1e-6 * size,
            Activation::XIelu { .. } => 2e-6 * size.max(exact.abs()),
        }
}

fn numbers(count: usize, size: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.9).sin() * size).collect()
}

proptest! {
    #[test]
    fn any_width_agrees_with_the_reference(
        width in 1usize..100,
        rows in 0usize..4,
        size in -6.0f32..4.0,
    ) {
        let x = numbers(rows * width, size.exp());
        for activation in ALL {
            let exact = reference::activate(&x, activation);
            for isa in Isa::available() {
                let mut y = x.clone();
                cpu::activated(isa, &mut y, width, activation);
                for ((x, y), exact) in x.iter().zip(&y).zip(&exact) {
                    let error = (f64::from(*y) - exact).abs();
                    let is_near = error <= tolerance(activation, *x, *exact);
                    prop_assert!(is_near, "{} {activation:?}: {x} {y} {exact}", isa.name());
                }
            }
        }
    }

    #[test]
    fn gates_of_any_width_agree_with_the_reference(
        inter in 1usize..100,
        rows in 0usize..4,
        size in 0.1f32..60.0,
    ) {
        let x = numbers(rows * 2 * inter, size);
        for activation in ALL {
            let exact = reference::gated(&x, inter, activation);
            for isa in Isa::available() {
                let mut y = vec![f32::NAN; rows * inter];
                cpu::gated_into(isa, &x, inter, activation, &mut y);
                prop_assert_eq!(y.len(), exact.len());
                for (i, (y, exact)) in y.iter().zip(&exact).enumerate() {
                    let at = i / inter * 2 * inter + i % inter;
                    let (gate, up) = (x[at], f64::from(x[at + inter]).abs());
                    let activated = exact.abs() / up.max(1e-30);
                    let bound = 1.2 * up * tolerance(activation, gate, activated) + 1e-30;
                    let error = (f64::from(*y) - exact).abs();
                    prop_assert!(error <= bound, "{} {activation:?}: {y} {exact}", isa.name());
                }
            }
        }
    }
}

#[test]
fn the_gate_comes_first() {
    let x = Tensor::<2>::from_data(
        TensorData::new(vec![0.0f32, 30.0, 5.0, 2.0], [1, 4]),
        &Device::flex(),
    );
    let y = swiglu(x).into_data().try_to_vec::<f32>().unwrap();
    assert_eq!(y, [0.0, 60.0]);
}

#[test]
fn a_gated_row_is_the_product_of_its_activated_half() {
    let device = Device::flex();
    let x = numbers(6 * 20, 3.0);
    let tensor = || Tensor::<2>::from_data(TensorData::new(x.clone(), [6, 20]), &device);
    for activation in ALL {
        let expected = activate(tensor().narrow(1, 0, 10), activation) * tensor().narrow(1, 10, 10);
        assert_eq!(gated(tensor(), activation).into_data(), expected.into_data());
    }
}

#[test]
fn a_row_does_not_see_its_batch() {
    // Enough rows to be divided among the threads.
    let (rows, width) = (200, 1002);
    let x = numbers(rows * width, 5.0);
    for isa in Isa::available() {
        for activation in ALL {
            let both = |x: &[f32]| {
                let (mut alone, mut y) = (x.to_vec(), vec![f32::NAN; x.len() / 2]);
                cpu::activated(isa, &mut alone, width, activation);
                cpu::gated_into(isa, x, width / 2, activation, &mut y);
                [alone, y]
            };
            let all = both(&x);
            for (i, row) in x.chunks_exact(width).enumerate() {
                for (all, row) in all.iter().zip(both(row)) {
                    assert_eq!(all[i * row.len()..][..row.len()], row, "{activation:?}");
                }
            }
        }
    }
}

#[test]
fn large_numbers_and_nans_keep_their_meaning() {
    for isa in Isa::available() {
        for activation in ALL {
            let mut y = [-1e4, 1e4, f32::NAN, 0.0, -1e15, 1e15];
            cpu::activated(isa, &mut y, 6, activation);
            let name = isa.name();
            assert!(y[2].is_nan(), "{name} {activation:?}");
            assert!([y[0], y[1], y[3], y[4], y[5]].iter().all(|y| y.is_finite()), "{activation:?}");
            let (low, at_zero, high) = match activation {
                Activation::XIelu { .. } => continue,
                Activation::Sigmoid => (0.0, 0.5, 1.0),
                Activation::Laplace => (0.0, y[3], 1.0),
                Activation::Softplus => (0.0, y[3], 1e4),
                Activation::Tanh => (-1.0, 0.0, 1.0),
                Activation::Identity => (-1e4, 0.0, 1e4),
                Activation::LeakyRelu => (-1e2, 0.0, 1e4),
                Activation::ReluSquared => (0.0, 0.0, 1e8),
                Activation::Relu6 => (0.0, 0.0, 6.0),
                Activation::GeluClipped => (0.0, 0.0, 10.0),
                _ => (0.0, 0.0, 1e4),
            };
            assert_eq!([y[1], y[3]], [high, at_zero], "{name} {activation:?}");
            assert!((y[0] - low).abs() < 1e-20, "{name} {activation:?}: {y:?}");
            let is_odd = matches!(activation, Activation::Identity | Activation::LeakyRelu);
            let least = if is_odd { low * 1e11 } else { low };
            assert!(
                (y[4] - least).abs() <= 1e-6 * least.abs() + 1e-20,
                "{name} {activation:?}: {y:?}"
            );
        }
    }
}
