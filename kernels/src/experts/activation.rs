//! The function between an expert's products.

use super::ExpertActivation;
use crate::activation::cpu::{activated, gated_into};
use crate::simd::{Isa, Kernel, PairMap, Simd, exp, map_row};
use crate::threads::for_each_rows;

/// Computes the activation of rows `[gate, up]`, or of rows without a gate, on one instruction set,
/// into y `[rows, inter]`.
pub(super) fn activate(
    isa: Isa,
    activation: ExpertActivation,
    gate_up: &[f32],
    inter: usize,
    y: &mut [f32],
) {
    match activation {
        ExpertActivation::Gated(activation) => gated_into(isa, gate_up, inter, activation, y),
        ExpertActivation::Plain(activation) => {
            y.copy_from_slice(gate_up);
            activated(isa, y, inter, activation);
        }
        ExpertActivation::ClampedSwiGlu { alpha, limit } => for_each_rows(y, inter, |first, y| {
            let gate_up = &gate_up[first * 2 * inter..][..2 * y.len()];
            isa.run(GatedRows { gate_up, inter, map: ClampedSwiGlu { alpha, limit }, y });
        }),
        ExpertActivation::LimitedSwiGlu { limit } => for_each_rows(y, inter, |first, y| {
            let gate_up = &gate_up[first * 2 * inter..][..2 * y.len()];
            isa.run(GatedRows { gate_up, inter, map: LimitedSwiGlu { limit }, y });
        }),
    }
}

/// The task of activating some rows.
struct GatedRows<'a, M> {
    gate_up: &'a [f32],
    inter: usize,
    map: M,
    y: &'a mut [f32],
}

impl<M: PairMap> Kernel for GatedRows<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.gate_up.chunks_exact(2 * self.inter);
        for (row, out) in rows.zip(self.y.chunks_exact_mut(self.inter)) {
            let (gate, up) = row.split_at(self.inter);
            map_row(s, gate, up, out, self.map);
        }
    }
}

/// The map of [`ExpertActivation::ClampedSwiGlu`]. Bounds come first in `min` and `max`, so that
/// NaN stays NaN.
#[derive(Clone, Copy)]
struct ClampedSwiGlu {
    alpha: f32,
    limit: f32,
}

impl PairMap for ClampedSwiGlu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, gate: S::V, up: S::V) -> S::V {
        let gate = s.min(s.splat(self.limit), gate);
        let up = s.max(s.splat(-self.limit), s.min(s.splat(self.limit), up));
        let e = exp(s, s.mul(gate, s.splat(-self.alpha)));
        let gated = s.div(gate, s.add(e, s.splat(1.0)));
        s.mul(gated, s.add(up, s.splat(1.0)))
    }
}

/// The map of [`ExpertActivation::LimitedSwiGlu`].
#[derive(Clone, Copy)]
struct LimitedSwiGlu {
    limit: f32,
}

impl PairMap for LimitedSwiGlu {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, gate: S::V, up: S::V) -> S::V {
        let most = s.splat(self.limit);
        let up = s.max(s.splat(-self.limit), s.min(most, up));
        let e = exp(s, s.mul(gate, s.splat(-1.0)));
        let gated = s.min(most, s.div(gate, s.add(e, s.splat(1.0))));
        s.mul(gated, up)
    }
}
