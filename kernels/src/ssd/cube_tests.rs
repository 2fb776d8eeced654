//! On a GPU: agreement with the reference, whatever the steps are.

use super::tests::config;
use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values};
use crate::states::fixture::{in_steps_on, noise};

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(
    device: &Device,
    model: &Ssd,
    xbc: [&[f32]; 2],
    dt: [&[f32]; 2],
    steps: &[usize],
) -> [Vec<f32>; 2] {
    let (columns, heads) = (model.columns(), model.sizes.num_heads);
    let state_len = model.state_of(heads - 1).end;
    let lens = xbc.map(|xbc| xbc.len() / columns);
    in_steps_on(device, state_len, lens, steps, model.width(), |layer, meta, tokens, y| {
        let (mut rows, mut of_dt) = (Vec::new(), Vec::new());
        for (seq, position) in tokens {
            rows.extend_from_slice(&xbc[*seq][position * columns..][..columns]);
            of_dt.push(f32::NAN);
            of_dt.extend_from_slice(&dt[*seq][position * heads..][..heads]);
        }
        let (rows, of_dt) = (tensor(&rows, columns, device), tensor(&of_dt, heads + 1, device));
        y.copy_from_slice(&values(ssd(rows, of_dt, 1, model, layer, meta)));
    })
}

#[test]
fn ragged_sizes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (num_groups, of_group, head_dim, state_size, steps) in [
        (1, 1, 1, 1, &[3][..]),
        (2, 3, 20, 17, &[1]),
        (1, 2, 64, 128, &[7, 1, 2]),
        (3, 1, 90, 5, &[100]),
        (1, 1, 100, 300, &[2, 9]),
    ] {
        let config = config(num_groups, of_group, head_dim, state_size);
        let model = Ssd::new(config.clone(), &device).unwrap();
        let (columns, heads) = (model.columns(), config.num_heads);
        let xbc = [noise(columns * 19, 4), noise(columns * 5, 5)];
        let dt = [noise(heads * 19, 6), noise(heads * 5, 7)];
        let y = run(&device, &model, [&xbc[0], &xbc[1]], [&dt[0], &dt[1]], steps);
        for seq in 0..2 {
            let exact = reference::ssd(&xbc[seq], &dt[seq], &config);
            let bound = 5e-5 * (1.0 + state_size as f64);
            assert_near(&y[seq], &exact, bound, &format!("{config:?}"));
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let Some(device) = test_device() else { return };
    let model = Ssd::new(config(2, 3, 64, 32), &device).unwrap();
    let (columns, heads) = (model.columns(), model.sizes.num_heads);
    let xbc = [noise(columns * 37, 4), noise(columns * 20, 5)];
    let dt = [noise(heads * 37, 6), noise(heads * 20, 7)];
    let run = |steps: &[usize]| {
        run(&device, &model, [&xbc[0], &xbc[1]], [&dt[0], &dt[1]], steps).map(|y| bits(&y))
    };
    let whole = run(&[1_000]);
    for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
        assert!(run(steps) == whole, "{steps:?}");
    }
}

#[test]
fn steps_without_a_number_are_seen() {
    let Some(device) = test_device() else { return };
    let model = Ssd::new(config(1, 2, 8, 4), &device).unwrap();
    let xbc = noise(model.columns() * 3, 4);
    let dt = [0.1, f32::NAN, 0.1, 0.1, 0.1, 0.1];
    let y = run(&device, &model, [&xbc, &[]], [&dt, &[]], &[3]);
    assert!(y[0][8..16].iter().all(|y| y.is_nan()) && y[0][..8].iter().all(|y| y.is_finite()));
}
