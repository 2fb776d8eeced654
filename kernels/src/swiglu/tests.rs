//! Comparisons with the reference.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::*;
use crate::simd::Isa;

proptest! {
    #[test]
    fn any_width_agrees_with_the_reference(
        inter in 1usize..100,
        rows in 0usize..4,
        scale in 0.1f32..60.0,
    ) {
        let x: Vec<f32> = (0..rows * 2 * inter).map(|i| (i as f32 * 0.9).sin() * scale).collect();
        let exact = reference::swiglu(&x, inter);
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; rows * inter];
            cpu::gated(isa, &x, inter, &mut y);
            prop_assert_eq!(y.len(), exact.len());
            for (y, exact) in y.iter().zip(&exact) {
                let bound = 1e-6 * exact.abs() + 1e-30;
                prop_assert!((f64::from(*y) - exact).abs() <= bound, "{} {y} {exact}", isa.name());
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
