//! Comparisons with the reference.

use proptest::prelude::*;

use super::cpu::{Inputs, scanned};
use super::*;
use crate::simd::Isa;
use crate::states::fixture::{in_steps, noise};

pub(super) fn config(channels: usize, state_size: usize) -> SelectiveScanConfig {
    SelectiveScanConfig {
        channels,
        state_size,
        a: noise(channels * state_size, 1).iter().map(|x| -(x + 1.1) * 2.0).collect(),
        d: noise(channels, 2),
        dt_bias: noise(channels, 3).iter().map(|x| x * 4.0).collect(),
        state_at: 3,
    }
}

/// x, dt, b and c of one sequence.
pub(super) fn sequence(config: &SelectiveScanConfig, len: usize, seed: usize) -> [Vec<f32>; 4] {
    let (channels, state) = (len * config.channels, len * config.state_size);
    [
        noise(channels, seed),
        noise(channels, seed + 1),
        noise(state, seed + 2),
        noise(state, seed + 3),
    ]
}

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(
    isa: Isa,
    scan: &SelectiveScan,
    seqs: &[[Vec<f32>; 4]; 2],
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let state_len = 3 + SelectiveScan::state_len(scan.sizes.channels, scan.sizes.state_size);
    let lens = [0, 1].map(|seq| seqs[seq][0].len() / scan.sizes.channels);
    in_steps(state_len, lens, steps, scan.sizes.channels, |layer, meta, tokens, y| {
        let rows = |input: usize, width: usize| {
            let row = |(seq, position): &(usize, usize)| {
                seqs[*seq][input][position * width..][..width].to_vec()
            };
            tokens.iter().flat_map(row).collect::<Vec<f32>>()
        };
        let (x, dt) = (rows(0, scan.sizes.channels), rows(1, scan.sizes.channels));
        let (b, c) = (rows(2, scan.sizes.state_size), rows(3, scan.sizes.state_size));
        let inputs = Inputs { x: &x, dt: &dt, b: &b, c: &c };
        scanned(isa, scan, inputs, layer, meta, y);
    })
}

proptest! {
    #[test]
    fn ragged_sizes_agree_with_the_reference(
        channels in 1usize..150,
        state_size in 1usize..20,
        steps in prop::collection::vec(1usize..9, 1..4),
    ) {
        let config = config(channels, state_size);
        let scan = SelectiveScan::new(&config, &Device::flex()).unwrap();
        let seqs = [sequence(&config, 13, 4), sequence(&config, 5, 8)];
        for isa in Isa::available() {
            let y = run(isa, &scan, &seqs, &steps);
            for (seq, y) in seqs.iter().zip(y) {
                let inputs = [&seq[0][..], &seq[1], &seq[2], &seq[3]];
                let exact = reference::selective_scan(inputs, &config);
                prop_assert_eq!(y.len(), exact.len());
                for (y, exact) in y.iter().zip(&exact) {
                    let bound = 4e-5 * (1.0 + state_size as f64);
                    prop_assert!((f64::from(*y) - exact).abs() < bound, "{y} {exact}");
                }
            }
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let config = config(130, 16);
    let scan = SelectiveScan::new(&config, &Device::flex()).unwrap();
    let seqs = [sequence(&config, 37, 4), sequence(&config, 20, 8)];
    for isa in Isa::available() {
        let whole = run(isa, &scan, &seqs, &[1_000]);
        for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
            assert_eq!(run(isa, &scan, &seqs, steps), whole);
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_by_name() {
    let good = config(4, 3);
    for (bad, field) in [
        (SelectiveScanConfig { state_size: 0, ..good.clone() }, "state_size"),
        (SelectiveScanConfig { a: vec![-1.0; 3], ..good.clone() }, "a holds"),
        (SelectiveScanConfig { d: vec![1.0; 3], ..good.clone() }, "d holds"),
    ] {
        let error = SelectiveScan::new(&bad, &Device::flex()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
