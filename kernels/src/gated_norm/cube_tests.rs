//! On a GPU: agreement with the reference.

use burn::tensor::Device;

use super::*;
use crate::cube::test_device::{assert_near, bits, tensor, test_device, values, vector};
use crate::states::fixture::noise;

fn with(norm: Option<(&[f32], usize)>, norm_before_gate: bool, device: &Device) -> GatedNorm {
    let norm = norm.map(|(weight, num_groups)| GroupNorm {
        weight: vector(weight, device),
        num_groups,
        eps: 1e-5,
    });
    GatedNorm { norm, norm_before_gate, activation: Activation::Silu, gate_scale: 0.5 }
}

#[test]
fn ragged_sizes_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (group, num_groups, is_shared, norm_before_gate, column) in [
        (1, 1, true, true, 0),
        (33, 3, true, false, 2),
        (64, 4, false, false, 8),
        (7, 2, false, true, 5),
    ] {
        let (features, rows) = (group * num_groups, 3);
        let columns = features + column + 1;
        let weight = noise(if is_shared { group } else { features }, 1);
        let (x, gate) = (noise(rows * features, 2), noise(rows * columns, 3));
        for norm in [None, Some((&weight[..], num_groups))] {
            let of = with(norm, norm_before_gate, &device);
            let (on_x, on_gate) = (tensor(&x, features, &device), tensor(&gate, columns, &device));
            let y = values(gated_norm(on_x, on_gate, column, &of));
            for (row, y) in y.chunks_exact(features).enumerate() {
                let x = &x[row * features..][..features];
                let gate = &gate[row * columns + column..][..features];
                let norm = norm.map(|(weight, num_groups)| (weight, num_groups, 1e-5));
                let exact = reference::gated_norm(x, gate, 0.5, norm, norm_before_gate);
                let size = exact.iter().fold(1.0_f64, |most, y| most.max(y.abs()));
                assert_near(y, &exact, 2e-5 * size, &format!("{num_groups} groups of {group}"));
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    let (features, rows) = (192, 40);
    let (x, gate) = (noise(rows * features, 1), noise(rows * features, 2));
    let weight = noise(features, 3);
    let of = with(Some((&weight, 4)), false, &device);
    let run = |x: &[f32], gate: &[f32]| {
        let (x, gate) = (tensor(x, features, &device), tensor(gate, features, &device));
        bits(&values(gated_norm(x, gate, 0, &of)))
    };
    let all = run(&x, &gate);
    for row in [0, 17, 39] {
        let of_row = |x: &[f32]| x[row * features..][..features].to_vec();
        assert!(run(&of_row(&x), &of_row(&gate)) == all[row * features..][..features]);
    }
}
