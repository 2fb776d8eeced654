//! The softmax of one row: over one span, and over spans in their order.

use super::AttentionParams;
use super::span::{SpanHead, Visible};
use crate::kv_cache::KvElement;
use crate::simd::{LANES, Simd, exp, max_of, sum_of};

/// The base of the weights, and their sum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Softmax {
    /// The largest score.
    pub(super) max: f32,
    /// `Σ exp(score − max)`
    pub(super) sum: f32,
}

impl Softmax {
    /// The softmax over no key at all.
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Turns the products of row `r` in the seen vectors of its register tile, `[vector][rows][LANES]`,
/// into `exp(score − max)`, times the scales of the values. Lanes that the row does not see get 0.
#[inline(always)]
pub(super) fn weigh<S: Simd, E: KvElement>(
    s: S,
    head: &SpanHead<'_, E>,
    visible: Visible,
    params: &AttentionParams,
    (r, rows): (usize, usize),
    scores: &mut [[f32; LANES]],
) -> Softmax {
    let (span, vectors) = (head.span, head.span.vectors());
    if !span.overlaps(visible) {
        for v in vectors {
            scores[v * rows + r] = [0.0; LANES];
        }
        return Softmax::EMPTY;
    }
    let (scale, mut max) = (s.splat(params.scale), s.splat(f32::NEG_INFINITY));
    for v in vectors.clone() {
        let x = &mut scores[v * rows + r];
        let mut score = s.mul(s.load(x), scale);
        if let Some(cap) = params.soft_cap {
            score = capped(s, score, cap);
        }
        s.store(x, score);
        let seen = span.lanes_seen(v, visible);
        if seen != (0..LANES) {
            x[..seen.start].fill(f32::NEG_INFINITY);
            x[seen.end..].fill(f32::NEG_INFINITY);
        }
        max = s.max(s.load(x), max);
    }
    let max = max_of(s, max);
    let (shift, mut sum) = (s.splat(-max), s.splat(0.0));
    for v in vectors {
        let x = &mut scores[v * rows + r];
        let mut weight = exp(s, s.add(s.load(x), shift));
        sum = s.add(sum, weight);
        if let Some(scales) = head.value_scales(v) {
            weight = s.mul(weight, s.load(scales));
        }
        s.store(x, weight);
    }
    Softmax { max, sum: sum_of(s, sum) }
}

/// Returns `c · tanh(x / c)`, as `c − 2 c / (exp(2 x / c) + 1)`.
#[inline(always)]
fn capped<S: Simd>(s: S, x: S::V, cap: f32) -> S::V {
    let e = exp(s, s.mul(x, s.splat(2.0 / cap)));
    let fraction = s.div(s.splat(-2.0 * cap), s.add(e, s.splat(1.0)));
    s.add(s.splat(cap), fraction)
}

/// Joins a span of `sums` `[value_dim]` to the sums of the spans before it in `o`.
#[inline(always)]
pub(super) fn join<S: Simd>(s: S, total: &mut Softmax, o: &mut [f32], span: Softmax, sums: &[f32]) {
    if span.max == f32::NEG_INFINITY && span.sum == 0.0 {
        // The row sees no key of the span. Its bytes must not depend on rows that do.
        return;
    }
    let max = total.max.max(span.max);
    // One of both is the larger, and its factor `exp(0)` is 1.
    let factor = |of: f32| if of == max { 1.0 } else { (of - max).exp() };
    let (before, now) = (factor(total.max), factor(span.max));
    *total = Softmax { max, sum: total.sum * before + span.sum * now };
    let (before, now) = (s.splat(before), s.splat(now));
    for (o, sums) in o.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.as_chunks().0) {
        s.store(o, s.fma(s.load(sums), now, s.mul(s.load(o), before)));
    }
}
