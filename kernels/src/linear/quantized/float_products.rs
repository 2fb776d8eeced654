//! The products of groups of rows with activations that are not quantized.

use super::float_product::{FloatProduct, Plan, reorder};
use super::fused::Multiplied;
use super::{ActivationDtype, PackedQuantized};
use crate::linear::groups::{Counted, RowGroups};
use crate::linear::micro::{Paired, Single};
use crate::linear::output::{Epilogue, Output};
use crate::linear::products::lay_out;
use crate::simd::{Isa, Kernel, Simd};
use crate::threads::{SharedMut, for_each_piece_of_stream};
use crate::workspace::Scratch;

/// Computes `x Wᵀ + b` of each group. The weights are like one another.
pub(super) fn grouped(isa: Isa, x: &[f32], groups: &RowGroups<'_>, y: &mut [f32]) {
    let y = SharedMut::new(y);
    let threads = groups.threads_each();
    let is_ordered = |group| groups.weight(group).quantized().input_order.is_some();
    if !(0..groups.len()).any(is_ordered) {
        return isa.run(FloatProducts { x, groups, threads, y });
    }
    let mut ordered = Scratch::new(x.len());
    for group in 0..groups.len() {
        let (rows, weight) = (groups.rows(group), groups.weight(group));
        let part = rows.start * weight.in_features..rows.end * weight.in_features;
        match &weight.quantized().input_order {
            None => ordered[part.clone()].copy_from_slice(&x[part]),
            Some(order) => reorder(&x[part.clone()], order, &mut ordered[part]),
        }
    }
    isa.run(FloatProducts { x: &ordered, groups, threads, y });
}

struct FloatProducts<'a> {
    /// Rows with their columns in the order of each weight.
    x: &'a [f32],
    groups: &'a RowGroups<'a>,
    /// The threads that the pieces of each product must be enough for.
    threads: usize,
    y: SharedMut<'a, f32>,
}

impl Kernel for FloatProducts<'_> {
    type Output = ();
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.may_round() && S::HAS_DOT_BF16 {
            self.multiply::<S, Paired>(s);
        } else {
            self.multiply::<S, Single>(s);
        }
    }
}

impl FloatProducts<'_> {
    fn first(&self) -> &PackedQuantized {
        self.groups.weight(0).quantized()
    }

    fn may_round(&self) -> bool {
        self.first().activations == ActivationDtype::Bf16
    }

    #[inline(always)]
    fn multiply<S: Simd, F: Multiplied<S>>(&self, s: S) {
        let header = &self.first().header;
        let inputs = header.groups.inputs;
        let x = lay_out::<S, F>(s, self.x, inputs, inputs.div_ceil(F::INPUTS), self.groups);
        let pieces = Counted::new(self.groups.len(), |group| {
            self.plan::<S, F, _>(group, &x, |plan| plan.pieces())
        });
        let work = self.x.len() * header.outputs;
        for_each_piece_of_stream(pieces.total(), work, |piece| {
            let (group, piece) = pieces.place(piece);
            self.plan::<S, F, _>(group, &x, |plan| plan.piece(s, piece));
        });
    }

    /// Calls `run` with the plan of a group's product. The plan is the same on every thread.
    #[inline(always)]
    fn plan<S: Simd, F: Multiplied<S>, R>(
        &self,
        group: usize,
        x: &[F::X],
        run: impl FnOnce(&Plan<'_, S, F>) -> R,
    ) -> R {
        let (rows, weight) = (self.groups.rows(group), self.groups.weight(group).quantized());
        let [outputs, inputs] = weight.shape();
        let part = |each: usize| rows.start * each..rows.end * each;
        let y = self.y.part(rows.start * outputs, rows.len() * outputs);
        let output = &Output { y, outputs, epilogue: Epilogue::Bias(self.groups.bias(group)) };
        let may_round = self.may_round();
        let product = FloatProduct { x: &self.x[part(inputs)], weight, output, may_round };
        let x = &x[part(inputs.div_ceil(F::INPUTS) * F::XS)];
        run(&Plan::<S, F>::new(&product, x, self.threads))
    }
}
