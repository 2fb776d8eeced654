//! Comparisons with the reference.

use proptest::prelude::*;

use super::cpu::scan;
use super::*;
use crate::causal_conv::cpu::Columns;
use crate::simd::Isa;
use crate::states::fixture::{in_steps, noise};

pub(super) fn config(
    num_groups: usize,
    of_group: usize,
    head_dim: usize,
    state_size: usize,
) -> SsdConfig {
    let num_heads = num_groups * of_group;
    SsdConfig {
        num_heads,
        head_dim,
        state_size,
        num_groups,
        a: noise(num_heads, 1).iter().map(|x| -(x + 1.1)).collect(),
        d: noise(num_heads, 2),
        dt_bias: noise(num_heads, 3),
        dt_scale: 0.75,
        dt_limit: [0.1, 1.0],
        state_at: 5,
    }
}

/// Returns the results of two sequences that advance by these numbers of tokens a step.
fn run(isa: Isa, model: &Ssd, xbc: [&[f32]; 2], dt: [&[f32]; 2], steps: &[usize]) -> [Vec<f32>; 2] {
    let (columns, heads) = (model.columns(), model.sizes.num_heads);
    let state_len = model.state_of(heads - 1).end;
    let lens = xbc.map(|xbc| xbc.len() / columns);
    in_steps(state_len, lens, steps, model.width(), |layer, meta, tokens, y| {
        let (mut rows, mut of_dt) = (Vec::new(), Vec::new());
        for (seq, position) in tokens {
            rows.extend_from_slice(&xbc[*seq][position * columns..][..columns]);
            of_dt.push(f32::NAN);
            of_dt.extend_from_slice(&dt[*seq][position * heads..][..heads]);
        }
        let of_dt = Columns { values: &of_dt, columns: heads + 1, first: 1 };
        scan(isa, model, &rows, of_dt, layer, meta, y);
    })
}

proptest! {
    #[test]
    fn ragged_sizes_agree_with_the_reference(
        num_groups in 1usize..4,
        of_group in 1usize..4,
        head_dim in 1usize..90,
        state_size in 1usize..40,
        steps in prop::collection::vec(1usize..9, 1..4),
    ) {
        let config = config(num_groups, of_group, head_dim, state_size);
        let model = Ssd::new(config.clone(), &Device::flex()).unwrap();
        let (columns, heads) = (model.columns(), config.num_heads);
        let xbc = [noise(columns * 13, 4), noise(columns * 5, 5)];
        let dt = [noise(heads * 13, 6), noise(heads * 5, 7)];
        for isa in Isa::available() {
            let y = run(isa, &model, [&xbc[0], &xbc[1]], [&dt[0], &dt[1]], &steps);
            for seq in 0..2 {
                let exact = reference::ssd(&xbc[seq], &dt[seq], &config);
                prop_assert_eq!(y[seq].len(), exact.len());
                for (y, exact) in y[seq].iter().zip(&exact) {
                    let bound = 1e-5 * (1.0 + state_size as f64);
                    prop_assert!((f64::from(*y) - exact).abs() < bound, "{y} {exact}");
                }
            }
        }
    }
}

#[test]
fn the_cuts_of_a_prompt_do_not_matter() {
    let model = Ssd::new(config(2, 3, 64, 32), &Device::flex()).unwrap();
    let (columns, heads) = (model.columns(), model.sizes.num_heads);
    let xbc = [noise(columns * 37, 4), noise(columns * 20, 5)];
    let dt = [noise(heads * 37, 6), noise(heads * 20, 7)];
    for isa in Isa::available() {
        let run = |steps: &[usize]| run(isa, &model, [&xbc[0], &xbc[1]], [&dt[0], &dt[1]], steps);
        let whole = run(&[1_000]);
        for steps in [&[1][..], &[16], &[5, 3, 1, 11]] {
            assert_eq!(run(steps), whole);
        }
    }
}

#[test]
fn steps_without_a_number_are_seen() {
    let model = Ssd::new(config(1, 2, 8, 4), &Device::flex()).unwrap();
    let xbc = noise(model.columns() * 3, 4);
    let dt = [0.1, f32::NAN, 0.1, 0.1, 0.1, 0.1];
    let y = run(Isa::active(), &model, [&xbc, &[]], [&dt, &[]], &[3]);
    assert!(y[0][8..16].iter().all(|y| y.is_nan()) && y[0][..8].iter().all(|y| y.is_finite()));
}

#[test]
fn sizes_that_do_not_fit_are_refused_by_name() {
    let good = config(2, 2, 8, 4);
    for (bad, field) in [
        (SsdConfig { num_groups: 3, ..good.clone() }, "num_groups"),
        (SsdConfig { head_dim: 0, ..good.clone() }, "head_dim"),
        (SsdConfig { a: vec![-1.0; 3], ..good.clone() }, "a holds"),
    ] {
        let error = Ssd::new(bad, &Device::flex()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
