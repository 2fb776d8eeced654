//! Comparisons with the reference.

use proptest::prelude::*;

use super::cpu::{Inputs, advanced};
use super::*;
use crate::simd::Isa;
use crate::states::fixture::{in_steps, noise};

/// The place of the state in that of the layer.
const STATE_AT: usize = 3;

pub(super) fn config(num_heads: usize, head_dim: usize) -> RgLruConfig {
    let channels = num_heads * head_dim;
    RgLruConfig {
        num_heads,
        // Channels that remember a thousand tokens, and channels that forget within one.
        rates: noise(channels, 1).iter().map(|x| (x * 4.0 - 2.0).exp()).collect(),
        gate_biases: noise(2 * channels, 2),
        state_at: STATE_AT,
    }
}

/// x and gates of one sequence.
pub(super) fn sequence(config: &RgLruConfig, len: usize, seed: usize) -> [Vec<f32>; 2] {
    let numbers = len * config.rates.len();
    let gates = noise(2 * numbers, seed + 1).iter().map(|x| x * 3.0).collect();
    [noise(numbers, seed), gates]
}

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(isa: Isa, unit: &RgLru, seqs: &[[Vec<f32>; 2]; 2], steps: &[usize]) -> [Vec<f32>; 2] {
    let channels = unit.channels();
    let lens = [0, 1].map(|seq| seqs[seq][0].len() / channels);
    in_steps(STATE_AT + channels, lens, steps, channels, |layer, meta, tokens, y| {
        let rows = |input: usize, width: usize| {
            let row = |(seq, position): &(usize, usize)| {
                seqs[*seq][input][position * width..][..width].to_vec()
            };
            tokens.iter().flat_map(row).collect::<Vec<f32>>()
        };
        let (x, gates) = (rows(0, channels), rows(1, 2 * channels));
        advanced(isa, unit, Inputs { x: &x, gates: &gates }, layer, meta, y);
    })
}

proptest! {
    #[test]
    fn ragged_sizes_agree_with_the_reference(
        num_heads in 1usize..5,
        head_dim in 1usize..40,
        steps in prop::collection::vec(1usize..9, 1..4),
    ) {
        let config = config(num_heads, head_dim);
        let unit = RgLru::new(&config, &Device::flex()).unwrap();
        let seqs = [sequence(&config, 13, 4), sequence(&config, 5, 8)];
        for isa in Isa::available() {
            let y = run(isa, &unit, &seqs, &steps);
            for ([x, gates], y) in seqs.iter().zip(y) {
                let exact = reference::rg_lru(x, gates, &config);
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
    let config = config(3, 21);
    let unit = RgLru::new(&config, &Device::flex()).unwrap();
    let seqs = [sequence(&config, 37, 4), sequence(&config, 20, 8)];
    for isa in Isa::available() {
        let whole = run(isa, &unit, &seqs, &[1_000]);
        for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
            assert_eq!(run(isa, &unit, &seqs, steps), whole);
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_by_name() {
    let good = config(4, 3);
    for (bad, field) in [
        (RgLruConfig { num_heads: 0, ..good.clone() }, "num_heads"),
        (RgLruConfig { num_heads: 5, ..good.clone() }, "rates"),
        (RgLruConfig { gate_biases: vec![1.0; 3], ..good.clone() }, "gate_biases"),
    ] {
        let error = RgLru::new(&bad, &Device::flex()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
