//! On a GPU: agreement with the reference, whatever the steps are.

use super::tests::Case;
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};
use crate::states::fixture::{in_steps_on, noise};

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(
    device: &Device,
    case: &Case,
    x: [&[f32]; 2],
    activation: Option<Activation>,
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let (channels, kernel) = (case.channels, case.kernel);
    let (weight, bias) = (&case.weight, Some(&case.bias[..]));
    let conv = CausalConv::new(weight, bias, kernel, activation, 3, device).unwrap();
    let state_len = 3 + CausalConv::state_len(channels, kernel);
    let lens = x.map(|x| x.len() / channels);
    in_steps_on(device, state_len, lens, steps, channels, |layer, meta, tokens, y| {
        // Two columns before the channels, and one after them.
        let columns = channels + 3;
        let mut rows = vec![f32::NAN; tokens.len() * columns];
        for (row, (seq, position)) in rows.chunks_exact_mut(columns).zip(tokens) {
            row[2..2 + channels].copy_from_slice(&x[*seq][position * channels..][..channels]);
        }
        let rows = tensor(&rows, columns, device);
        y.copy_from_slice(&values(causal_conv(rows, 2, &conv, layer, meta)));
    })
}

#[test]
fn ragged_sizes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (channels, kernel, steps) in
        [(1, 1, &[3][..]), (5, 2, &[1]), (130, 4, &[7, 1, 2]), (64, 3, &[100]), (9, 20, &[5, 4])]
    {
        let case = Case::new(channels, kernel);
        let x = [noise(channels * 31, 3), noise(channels * 6, 4)];
        let y = run(&device, &case, [&x[0], &x[1]], None, steps);
        for (x, y) in x.iter().zip(y) {
            let exact = reference::causal_conv(x, &case.weight, &case.bias, kernel);
            assert_near(&y, &exact, 1e-5, &format!("{channels} channels, {kernel} taps"));
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let Some(device) = test_device() else { return };
    let case = Case::new(100, 4);
    let x = [noise(100 * 37, 5), noise(100 * 20, 6)];
    let run = |steps: &[usize]| {
        run(&device, &case, [&x[0], &x[1]], Some(Activation::Silu), steps).map(|y| bits(&y))
    };
    let whole = run(&[1_000]);
    for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
        assert!(run(steps) == whole, "{steps:?}");
    }
}

#[test]
fn an_activation_follows_the_sum() {
    let Some(device) = test_device() else { return };
    let case = Case::new(20, 3);
    let x = [noise(20 * 5, 7), noise(20, 8)];
    let of = |activation| run(&device, &case, [&x[0], &x[1]], activation, &[2]);
    let (plain, relu) = (of(None), of(Some(Activation::Relu)));
    assert_eq!(relu, plain.map(|y| y.into_iter().map(|y| y.max(0.0)).collect::<Vec<_>>()));
}
