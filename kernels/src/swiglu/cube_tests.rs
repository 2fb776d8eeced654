//! On a GPU: the results agree with the reference.

use super::*;
use crate::cube::test_device::{assert_near, numbers, tensor, test_device, values};

#[test]
fn any_width_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (rows, inter) in [(1, 1), (3, 6), (2, 130), (5, 512)] {
        let x: Vec<f32> = numbers(rows * 2 * inter, 1).iter().map(|x| x * 20.0).collect();
        let y = values(swiglu(tensor(&x, 2 * inter, &device)));
        assert_near(&y, &reference::swiglu(&x, inter), 4e-4, &format!("{rows} rows of {inter}"));
    }
}

#[test]
fn a_gate_far_below_zero_is_closed() {
    let Some(device) = test_device() else { return };
    let y = values(swiglu(tensor(&[-200.0, 200.0, 3.0, 2.0], 4, &device)));
    assert_eq!(y, [0.0, 400.0]);
}
