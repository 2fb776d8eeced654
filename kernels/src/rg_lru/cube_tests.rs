//! On a GPU: agreement with the reference, whatever the steps are.

use super::tests::{config, sequence};
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};
use crate::states::fixture::in_steps_on;

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(
    device: &Device,
    config: &RgLruConfig,
    seqs: &[[Vec<f32>; 2]; 2],
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let channels = config.rates.len();
    let unit = RgLru::new(config, device).unwrap();
    let lens = [0, 1].map(|seq| seqs[seq][0].len() / channels);
    let state_len = config.state_at + channels;
    in_steps_on(device, state_len, lens, steps, channels, |layer, meta, tokens, y| {
        let rows = |input: usize, width: usize| {
            let row = |(seq, position): &(usize, usize)| {
                seqs[*seq][input][position * width..][..width].to_vec()
            };
            tensor(&tokens.iter().flat_map(row).collect::<Vec<f32>>(), width, device)
        };
        let (x, gates) = (rows(0, channels), rows(1, 2 * channels));
        y.copy_from_slice(&values(rg_lru(x, gates, &unit, layer, meta)));
    })
}

#[test]
fn ragged_sizes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (num_heads, head_dim, steps) in
        [(1, 1, &[3][..]), (10, 13, &[1]), (3, 24, &[7, 1, 2]), (2, 64, &[100])]
    {
        let config = config(num_heads, head_dim);
        let seqs = [sequence(&config, 19, 4), sequence(&config, 5, 8)];
        let y = run(&device, &config, &seqs, steps);
        for ([x, gates], y) in seqs.iter().zip(y) {
            let exact = reference::rg_lru(x, gates, &config);
            assert_near(&y, &exact, 5e-5, &format!("{num_heads} heads of {head_dim}"));
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let Some(device) = test_device() else { return };
    let config = config(3, 30);
    let seqs = [sequence(&config, 37, 4), sequence(&config, 20, 8)];
    let run = |steps: &[usize]| run(&device, &config, &seqs, steps).map(|y| bits(&y));
    let whole = run(&[1_000]);
    for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
        assert!(run(steps) == whole, "{steps:?}");
    }
}
