//! The CPU's version: rows divided among threads.

use burn_flex::FlexTensor;

use super::{GatedNorm, GroupNorm};
use crate::activation::cpu::gate_row;
use crate::causal_conv::cpu::Columns;
use crate::rms_norm::cpu::norm_in_place;
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, owned};

/// Gates and normalises.
pub(crate) fn gated_norm(
    x: FlexTensor,
    gate: FlexTensor,
    column: usize,
    norm: &GatedNorm,
) -> FlexTensor {
    let (mut x, gate) = (owned(x), dense(gate));
    let ([rows, features], [gate_rows, columns]) = (dims2(&x), dims2(&gate));
    assert_eq!(rows, gate_rows, "gated_norm: rows of the gate");
    assert!(column + features <= columns, "gated_norm: columns of the gate");
    let of_gate = Columns { values: values(&gate), columns, first: column };
    gated(Isa::active(), values_mut(&mut x), features, of_gate, norm);
    give_back(gate);
    x
}

/// Gates and normalises in place on one instruction set.
pub(super) fn gated(isa: Isa, x: &mut [f32], features: usize, gate: Columns<'_>, norm: &GatedNorm) {
    if let Some(GroupNorm { weight, num_groups, .. }) = &norm.norm {
        let group = features / num_groups;
        assert_eq!(features, num_groups * group, "gated_norm: groups of {features} features");
        assert!([features, group].contains(&weight.len()), "gated_norm: length of the weight");
    }
    for_each_rows(x, features, |first, x| isa.run(Rows { x, features, first, gate, norm }));
}

/// Some rows.
struct Rows<'a> {
    x: &'a mut [f32],
    features: usize,
    first: usize,
    gate: Columns<'a>,
    norm: &'a GatedNorm,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let GatedNorm { norm, norm_before_gate, activation, gate_scale } = self.norm;
        for (row, x) in self.x.chunks_exact_mut(self.features).enumerate() {
            let gate = self.gate.row(self.first + row, 0..self.features);
            if *norm_before_gate {
                normalise(s, x, norm.as_ref());
            }
            gate_row(s, x, gate, *gate_scale, *activation);
            if !norm_before_gate {
                normalise(s, x, norm.as_ref());
            }
        }
    }
}

/// Normalises each group of a row.
#[inline(always)]
fn normalise<S: Simd>(s: S, x: &mut [f32], norm: Option<&GroupNorm>) {
    let Some(GroupNorm { weight, num_groups, eps }) = norm else { return };
    let (weight, group) = (weight.cpu(), x.len() / num_groups);
    let weights = weight.chunks_exact(group).cycle();
    for (x, weight) in x.chunks_exact_mut(group).zip(weights) {
        norm_in_place(s, x, Some(weight), *eps);
    }
}
