//! The online softmax of one row over one span.

use super::AttentionParams;
use super::span::{Span, Visible};
use super::tile::RowState;
use crate::simd::{LANES, Simd, exp, max_of, sum_of};

/// Turns the products in the seen vectors of `row` into weights relative to the new maximum, and
/// brings `state` up to date. Lanes that the row does not see get weight 0.
#[inline(always)]
pub(super) fn update<S: Simd>(
    s: S,
    span: &Span<'_>,
    visible: Visible,
    params: &AttentionParams,
    row: &mut [f32],
    state: &mut RowState,
) {
    let vectors = span.vectors();
    if !span.overlaps(visible) {
        row[vectors.start * LANES..vectors.end * LANES].fill(0.0);
        state.rescale = 1.0;
        return;
    }
    scale(s, params, &mut row.as_chunks_mut::<LANES>().0[vectors.clone()]);
    span.mask(visible, row);
    let seen = &mut row.as_chunks_mut::<LANES>().0[vectors];
    let mut max = s.splat(f32::NEG_INFINITY);
    for x in seen.iter() {
        max = s.max(max, s.load(x));
    }
    let max = state.max.max(max_of(s, max));
    let mut sum = s.splat(0.0);
    for x in seen.iter_mut() {
        let weight = exp(s, s.add(s.load(x), s.splat(-max)));
        s.store(x, weight);
        sum = s.add(sum, weight);
    }
    state.rescale = (state.max - max).exp();
    state.sum = state.sum * state.rescale + sum_of(s, sum);
    state.max = max;
}

/// Scales, and caps where a cap is set: `c · tanh(x / c)`, as `c − 2 c / (exp(2 x / c) + 1)`.
#[inline(always)]
fn scale<S: Simd>(s: S, params: &AttentionParams, scores: &mut [[f32; LANES]]) {
    for x in scores.iter_mut() {
        s.store(x, s.mul(s.load(x), s.splat(params.scale)));
    }
    let Some(cap) = params.soft_cap else { return };
    let one = s.splat(1.0);
    for x in scores {
        let e = exp(s, s.mul(s.load(x), s.splat(2.0 / cap)));
        let fraction = s.div(s.splat(-2.0 * cap), s.add(e, one));
        s.store(x, s.add(s.splat(cap), fraction));
    }
}
