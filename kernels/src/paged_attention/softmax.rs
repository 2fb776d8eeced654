//! The softmax of one row: over one span, and over spans in their order.

use half::bf16;

use super::span::{Span, SpanHead, Visible};
use super::{AttentionParams, DistanceBiases};
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

    /// Joins a sink, which has a score and no value. Returns the factor of the sums so far, and the
    /// sum of the weights with that of the sink.
    pub(super) fn with_sink(self, sink: f32) -> (f32, f32) {
        let max = self.max.max(sink);
        let before = factor(self.max, max);
        (before, self.sum * before + factor(sink, max))
    }
}

/// Returns the factor that makes weights relative to `of` relative to `max`. For the larger of two
/// maxima, it is exactly 1.
#[inline(always)]
fn factor(of: f32, max: f32) -> f32 {
    if of == max { 1.0 } else { (of - max).exp() }
}

/// The steps from the products of one row to its scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scoring<'a> {
    scale: f32,
    soft_cap: Option<f32>,
    /// The slope of ALiBi.
    slope: Option<f32>,
    /// Whether the biases of ALiBi are rounded to bfloat16, and scaled.
    rounds: bool,
    /// The biases of distances.
    biases: Option<&'a DistanceBiases>,
    head: usize,
}

impl AttentionParams {
    /// Returns the steps to the scores of a query head.
    pub(super) fn scoring(&self, head: usize) -> Scoring<'_> {
        let slope = self.alibi_slopes.as_ref().map(|slopes| slopes.cpu()[head]);
        let rounds = self.rounds_alibi;
        let biases = self.distance_biases.as_ref();
        Scoring { scale: self.scale, soft_cap: self.soft_cap, slope, rounds, biases, head }
    }
}

/// Turns the products of row `r` in the seen vectors of its register tile, `[vector][rows][LANES]`,
/// into `exp(score − max)`, times the scales of the values. Lanes that the row does not see get 0.
#[inline(always)]
pub(super) fn weigh<S: Simd, E: KvElement>(
    s: S,
    head: &SpanHead<'_, E>,
    visible: Visible,
    scoring: Scoring<'_>,
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
    let is_scaled_only =
        scoring.soft_cap.is_none() && scoring.slope.is_none() && scoring.biases.is_none();
    let max = if is_scaled_only {
        score::<S, true>(s, span, visible, scoring, (r, rows), scores)
    } else {
        score::<S, false>(s, span, visible, scoring, (r, rows), scores)
    };
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

/// Turns the products of row `r` into scores. Lanes that the row does not see get −∞. Returns the
/// largest score. A row that is `SCALED_ONLY` has no soft cap, no slope and no biases.
#[inline(always)]
fn score<S: Simd, const SCALED_ONLY: bool>(
    s: S,
    span: &Span<'_>,
    visible: Visible,
    scoring: Scoring<'_>,
    (r, rows): (usize, usize),
    scores: &mut [[f32; LANES]],
) -> f32 {
    let (scale, mut max) = (s.splat(scoring.scale), s.splat(f32::NEG_INFINITY));
    for v in span.vectors() {
        let x = &mut scores[v * rows + r];
        let mut score = s.mul(s.load(x), scale);
        if !SCALED_ONLY {
            if let Some(cap) = scoring.soft_cap {
                score = capped(s, score, cap);
            }
            if let Some(slope) = scoring.slope {
                score = if scoring.rounds {
                    let biases = rounded_biases(slope, span.position_of(v));
                    s.fma(s.load(&biases), scale, score)
                } else {
                    s.fma(s.splat(slope), distances(s, span, v, visible), score)
                };
            }
        }
        if !SCALED_ONLY && let Some(biases) = scoring.biases {
            let first = span.position_of(v) as i64 - visible.position as i64;
            score = s.add(score, s.load(&biases.lanes(scoring.head, first)));
        }
        s.store(x, score);
        let seen = span.lanes_seen(v, visible);
        if seen != (0..LANES) {
            x[..seen.start].fill(f32::NEG_INFINITY);
            x[seen.end..].fill(f32::NEG_INFINITY);
        }
        max = s.max(s.load(x), max);
    }
    max_of(s, max)
}

/// Returns `j - i` for the keys `j` of vector `v` and the query at `i`.
#[inline(always)]
fn distances<S: Simd>(s: S, span: &Span<'_>, v: usize, visible: Visible) -> S::V {
    const LANE_NUMBERS: [f32; LANES] =
        [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    let first = span.position_of(v) as i64 - visible.position as i64;
    s.add(s.splat(first as f32), s.load(&LANE_NUMBERS))
}

/// Returns `bf16(slope · bf16(j))` for the keys `j` from `first` on.
fn rounded_biases(slope: f32, first: usize) -> [f32; LANES] {
    let rounded = |x: f32| bf16::from_f32(x).to_f32();
    std::array::from_fn(|lane| rounded(slope * rounded((first + lane) as f32)))
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
    let (before, now) = (factor(total.max, max), factor(span.max, max));
    *total = Softmax { max, sum: total.sum * before + span.sum * now };
    let (before, now) = (s.splat(before), s.splat(now));
    for (o, sums) in o.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.as_chunks().0) {
        s.store(o, s.fma(s.load(sums), now, s.mul(s.load(o), before)));
    }
}
