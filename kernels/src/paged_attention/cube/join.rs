//! Joins the sums of spans, in the order of the spans.

use cubecl::prelude::*;

use super::plan::{JOIN_WORDS, SEEN_WORDS, Tile};
use super::{HIDDEN, SPAN};
use crate::cube::Vec4;

/// Returns the factors that join a row's sums with a span's, and the larger of both maxima. The
/// first factor is for the old sums, the second for the span's sums. Sums are relative to their
/// largest score.
#[cube]
pub(super) fn factors(max_so_far: f32, span_max: f32) -> (f32, f32, f32) {
    let largest = max(max_so_far, span_max);
    ((max_so_far - largest).exp(), (span_max - largest).exp(), largest)
}

/// Returns whether a query that sees the keys `first ..= last` sees any of the span that starts at
/// `start`.
#[cube]
pub(super) fn sees(first: usize, last: usize, start: usize) -> bool {
    start <= last && start + SPAN > first
}

/// Returns a head's result: its sums over their total, both relative to the largest score. All
/// spans were joined, so now the head's sink joins.
#[cube]
pub(super) fn result(
    sums: Vec4,
    total: f32,
    largest: f32,
    sinks: ComptimeOption<&[f32]>,
    head: usize,
) -> Vec4 {
    if comptime!(sinks.is_some()) {
        let (old, new, _) = factors(largest, sinks.unwrap()[head]);
        sums * Vec4::new(old) / Vec4::new(fma(total, old, new))
    } else {
        sums / Vec4::new(total)
    }
}

/// Joins the spans of all tokens: one cube a token and head, one unit for each four dimensions.
#[cube(launch_unchecked)]
pub(super) fn join_kernel(
    records: &[Vec4],
    plan: &[u32],
    sinks: ComptimeOption<&[f32]>,
    o: &mut [Vec4],
    rows: usize,
    seen_at: usize,
    joins_at: usize,
    num_heads: usize,
    #[comptime] tile: Tile,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let vectors = comptime!(tile.value_head_dim / 4);
    let unit = UNIT_POS as usize;
    let (token, head) = (row / num_heads, row % num_heads);
    let join = joins_at + token * JOIN_WORDS;
    let first_item = plan[join] as usize;
    let place = plan[join + 1] as usize;
    let first_span = plan[join + 2] as usize;
    let spans = plan[join + 3] as usize;
    let seen = seen_at + token * SEEN_WORDS;
    let (first_seen, last_seen) = (plan[seen] as usize, plan[seen + 1] as usize);
    if unit < vectors && spans > 0 {
        let mut largest = HIDDEN.runtime();
        let mut total = 0.0f32.runtime();
        let mut sum = Vec4::new(0.0f32);
        for s in 0..spans {
            if sees(first_seen, last_seen, (first_span + s) * SPAN) {
                let record = ((first_item + s) * comptime!(tile.tokens) + place) * num_heads + head;
                let at = record * comptime!(vectors + 1);
                let head_sums = records[at + vectors];
                let (old, new, max) = factors(largest, head_sums.extract(0usize));
                largest = max;
                total = fma(head_sums.extract(1usize), new, total * old);
                sum = fma(records[at + unit], Vector::new(new), sum * Vector::new(old));
            }
        }
        o[row * vectors + unit] = result(sum, total, largest, sinks, head);
    }
}
