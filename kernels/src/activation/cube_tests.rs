//! On a GPU: the results agree with the reference.

use super::tests::ALL;
use super::*;
use crate::cube::test_device::{numbers, tensor, test_device, values};

/// Asserts that `y` is near `exact`, relative to the larger of input and result.
fn assert_close(y: &[f32], exact: &[f64], size: impl Fn(usize) -> f64, what: &str) {
    assert_eq!(y.len(), exact.len(), "{what}");
    for (i, (y, exact)) in y.iter().zip(exact).enumerate() {
        let bound = 2e-5 * size(i).max(exact.abs()) + 1e-20;
        assert!((f64::from(*y) - exact).abs() <= bound, "{what}: [{i}] is {y}, not {exact}");
    }
}

#[test]
fn any_width_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (rows, width) in [(1, 1), (3, 6), (2, 130), (5, 512)] {
        for size in [0.01, 1.0, 20.0] {
            let x: Vec<f32> = numbers(rows * width, 1).iter().map(|x| x * size).collect();
            for activation in ALL {
                let y = values(activate(tensor(&x, width, &device), activation));
                let exact = reference::activate(&x, activation);
                let what = format!("{activation:?} of {rows} rows of {width}");
                assert_close(&y, &exact, |i| f64::from(x[i].abs()), &what);
            }
        }
    }
}

#[test]
fn gates_of_any_width_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (rows, inter) in [(1, 1), (3, 6), (2, 130), (5, 512)] {
        let x: Vec<f32> = numbers(rows * 2 * inter, 1).iter().map(|x| x * 20.0).collect();
        for activation in ALL {
            let y = values(gated(tensor(&x, 2 * inter, &device), activation));
            let exact = reference::gated(&x, inter, activation);
            let size = |i: usize| {
                let at = i / inter * 2 * inter + i % inter;
                f64::from((x[at] * x[at + inter]).abs())
            };
            assert_close(&y, &exact, size, &format!("{activation:?}, {rows} rows of {inter}"));
        }
    }
}

#[test]
fn a_gate_far_below_zero_is_closed() {
    let Some(device) = test_device() else { return };
    let y = values(swiglu(tensor(&[-200.0, 200.0, 3.0, 2.0], 4, &device)));
    assert_eq!(y, [0.0, 400.0]);
}

#[test]
fn large_numbers_stay_finite() {
    let Some(device) = test_device() else { return };
    for activation in ALL {
        let y = values(activate(tensor(&[-1e4, 1e4, 0.0, 13.0], 4, &device), activation));
        assert!(y.iter().all(|y| y.is_finite()), "{activation:?}: {y:?}");
    }
}
