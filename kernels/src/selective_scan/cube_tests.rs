//! On a GPU: agreement with the reference, whatever the steps are.

use super::tests::{config, sequence};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};
use crate::states::fixture::in_steps_on;

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(
    device: &Device,
    config: &SelectiveScanConfig,
    seqs: &[[Vec<f32>; 4]; 2],
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let SelectiveScanConfig { channels, state_size, .. } = *config;
    let scan = SelectiveScan::new(config, device).unwrap();
    let state_len = 3 + SelectiveScan::state_len(channels, state_size);
    let lens = [0, 1].map(|seq| seqs[seq][0].len() / channels);
    in_steps_on(device, state_len, lens, steps, channels, |layer, meta, tokens, y| {
        let rows = |input: usize, width: usize| {
            let row = |(seq, position): &(usize, usize)| {
                seqs[*seq][input][position * width..][..width].to_vec()
            };
            tensor(&tokens.iter().flat_map(row).collect::<Vec<f32>>(), width, device)
        };
        let (x, dt) = (rows(0, channels), rows(1, channels));
        let of_state = [rows(2, state_size), rows(3, state_size)];
        y.copy_from_slice(&values(selective_scan(x, dt, of_state, &scan, layer, meta)));
    })
}

#[test]
fn ragged_sizes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (channels, state_size, steps) in
        [(1, 1, &[3][..]), (130, 16, &[1]), (70, 5, &[7, 1, 2]), (66, 40, &[100])]
    {
        let config = config(channels, state_size);
        let seqs = [sequence(&config, 19, 4), sequence(&config, 5, 8)];
        let y = run(&device, &config, &seqs, steps);
        for (seq, y) in seqs.iter().zip(y) {
            let inputs = [&seq[0][..], &seq[1], &seq[2], &seq[3]];
            let exact = reference::selective_scan(inputs, &config);
            let bound = 5e-5 * (1.0 + state_size as f64);
            assert_near(&y, &exact, bound, &format!("{channels} channels of {state_size}"));
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let Some(device) = test_device() else { return };
    let config = config(100, 16);
    let seqs = [sequence(&config, 37, 4), sequence(&config, 20, 8)];
    let run = |steps: &[usize]| run(&device, &config, &seqs, steps).map(|y| bits(&y));
    let whole = run(&[1_000]);
    for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
        assert!(run(steps) == whole, "{steps:?}");
    }
}
