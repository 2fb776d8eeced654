//! Comparisons with the reference.

use proptest::prelude::*;

use super::cpu::{Columns, convolve};
use super::*;
use crate::simd::Isa;
use crate::states::fixture::{in_steps, noise};

pub(super) struct Case {
    pub(super) channels: usize,
    pub(super) kernel: usize,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl Case {
    pub(super) fn new(channels: usize, kernel: usize) -> Self {
        let (weight, bias) = (noise(channels * kernel, 1), noise(channels, 2));
        Self { channels, kernel, weight, bias }
    }

    fn conv(&self, activation: Option<Activation>) -> CausalConv {
        let (weight, bias) = (&self.weight, Some(&self.bias[..]));
        CausalConv::new(weight, bias, self.kernel, activation, 3, &Device::flex()).unwrap()
    }

    /// Returns the results of two sequences that advance by these numbers of tokens a step.
    fn run(&self, isa: Isa, x: [&[f32]; 2], conv: &CausalConv, steps: &[usize]) -> [Vec<f32>; 2] {
        let state_len = 3 + CausalConv::state_len(self.channels, self.kernel);
        let lens = x.map(|x| x.len() / self.channels);
        in_steps(state_len, lens, steps, self.channels, |layer, meta, tokens, y| {
            // Two columns before the channels, and one after them.
            let columns = self.channels + 3;
            let mut rows = vec![f32::NAN; tokens.len() * columns];
            for (row, (seq, position)) in rows.chunks_exact_mut(columns).zip(tokens) {
                let x = &x[*seq][position * self.channels..][..self.channels];
                row[2..2 + self.channels].copy_from_slice(x);
            }
            let input = Columns { values: &rows, columns, first: 2 };
            convolve(isa, conv, input, layer, meta, y);
        })
    }
}

proptest! {
    #[test]
    fn ragged_sizes_agree_with_the_reference(
        channels in 1usize..150,
        kernel in 1usize..6,
        steps in prop::collection::vec(1usize..9, 1..4),
    ) {
        let case = Case::new(channels, kernel);
        let conv = case.conv(None);
        let x = [noise(channels * 11, 3), noise(channels * 6, 4)];
        for isa in Isa::available() {
            let y = case.run(isa, [&x[0], &x[1]], &conv, &steps);
            for (x, y) in x.iter().zip(y) {
                let exact = reference::causal_conv(x, &case.weight, &case.bias, kernel);
                prop_assert_eq!(y.len(), exact.len());
                for (y, exact) in y.iter().zip(&exact) {
                    prop_assert!((f64::from(*y) - exact).abs() < 1e-5, "{y} {exact}");
                }
            }
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let case = Case::new(200, 4);
    let conv = case.conv(Some(Activation::Silu));
    let x = [noise(200 * 37, 5), noise(200 * 20, 6)];
    for isa in Isa::available() {
        let whole = case.run(isa, [&x[0], &x[1]], &conv, &[1_000]);
        for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
            assert_eq!(case.run(isa, [&x[0], &x[1]], &conv, steps), whole);
        }
    }
}

#[test]
fn an_activation_follows_the_sum() {
    let case = Case::new(20, 3);
    let x = [noise(20 * 5, 7), noise(20, 8)];
    let of = |activation| case.run(Isa::active(), [&x[0], &x[1]], &case.conv(activation), &[2]);
    let (plain, relu) = (of(None), of(Some(Activation::Relu)));
    let expected = plain.map(|y| y.into_iter().map(|y| y.max(0.0)).collect::<Vec<_>>());
    assert_eq!(relu, expected);
}

#[test]
fn more_taps_than_a_piece_has_room_for_are_taken() {
    let case = Case::new(10, 20);
    let x = [noise(10 * 30, 9), noise(10 * 3, 10)];
    let y = case.run(Isa::active(), [&x[0], &x[1]], &case.conv(None), &[7]);
    let exact = reference::causal_conv(&x[0], &case.weight, &case.bias, 20);
    assert!(y[0].iter().zip(&exact).all(|(y, exact)| (f64::from(*y) - exact).abs() < 1e-5));
}

#[test]
fn weights_that_do_not_fit_are_refused_by_name() {
    let device = Device::flex();
    let refused = |weight: &[f32], bias: Option<&[f32]>, kernel| {
        CausalConv::new(weight, bias, kernel, None, 0, &device).unwrap_err().to_string()
    };
    assert!(refused(&[1.0; 5], None, 2).contains("weight"));
    assert!(refused(&[1.0; 6], Some(&[1.0; 2]), 2).contains("bias"));
    assert!(refused(&[1.0; 6], None, 0).contains("kernel"));
}
