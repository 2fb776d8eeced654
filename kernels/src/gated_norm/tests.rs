//! Comparisons with the reference.

use burn::tensor::Device;
use proptest::prelude::*;

use super::cpu::gated;
use super::*;
use crate::causal_conv::cpu::Columns;
use crate::simd::Isa;
use crate::states::fixture::noise;

fn norm(weight: &[f32], num_groups: usize, norm_before_gate: bool) -> GatedNorm {
    let weight = WeightVector::new(weight.to_vec(), &Device::flex()).unwrap();
    GatedNorm {
        norm: Some(GroupNorm { weight, num_groups, eps: 1e-5 }),
        norm_before_gate,
        activation: Activation::Silu,
        gate_scale: 0.5,
    }
}

proptest! {
    #[test]
    fn ragged_sizes_agree_with_the_reference(
        group in 1usize..70,
        num_groups in 1usize..5,
        is_shared in any::<bool>(),
        norm_before_gate in any::<bool>(),
        has_norm in any::<bool>(),
        rows in 0usize..4,
    ) {
        let features = group * num_groups;
        let weight = noise(if is_shared { group } else { features }, 1);
        let (x, gate) = (noise(rows * features, 2), noise(rows * (features + 3), 3));
        let mut with = norm(&weight, num_groups, norm_before_gate);
        with.norm = with.norm.filter(|_| has_norm);
        for isa in Isa::available() {
            let mut y = x.clone();
            let of_gate = Columns { values: &gate, columns: features + 3, first: 2 };
            gated(isa, &mut y, features, of_gate, &with);
            for (row, y) in y.chunks_exact(features).enumerate() {
                let (x, gate) = (&x[row * features..][..features], of_gate.row(row, 0..features));
                let norm = has_norm.then_some((&weight[..], num_groups, 1e-5));
                let exact = reference::gated_norm(x, gate, 0.5, norm, norm_before_gate);
                for (y, exact) in y.iter().zip(exact) {
                    prop_assert!((f64::from(*y) - exact).abs() < 4e-6 * (1.0 + exact.abs()));
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    let (features, rows) = (192, 400);
    let (x, gate) = (noise(rows * features, 1), noise(rows * features, 2));
    let with = norm(&noise(features, 3), 4, false);
    let of_gate = Columns { values: &gate, columns: features, first: 0 };
    let mut all = x.clone();
    gated(Isa::active(), &mut all, features, of_gate, &with);
    for (row, y) in all.chunks_exact(features).enumerate() {
        let mut alone = x[row * features..][..features].to_vec();
        let gate = Columns { values: of_gate.row(row, 0..features), columns: features, first: 0 };
        gated(Isa::active(), &mut alone, features, gate, &with);
        assert_eq!(y, alone);
    }
}
