//! Joins the sums of spans, in the order of the spans.

use cubecl::prelude::*;

use super::plan::{JOIN_WORDS, Tile};
use super::{HIDDEN, SPAN};
use crate::cube::Vec4;

/// Returns how to join a row's sums with a span's, each relative to its largest score: the factors
/// of the old sums and of the span's, and the larger of both maxima.
#[cube]
pub(super) fn factors(max_so_far: f32, span_max: f32) -> (f32, f32, f32) {
    let largest = max(max_so_far, span_max);
    ((max_so_far - largest).exp(), (span_max - largest).exp(), largest)
}

/// Returns whether a query at `position` sees any key of the span that starts at `start`. A window
/// of 0 means no window.
#[cube]
pub(super) fn sees(position: usize, start: usize, window: usize) -> bool {
    let last = min(start + comptime!(SPAN - 1), position);
    start <= position && (window == 0 || last + window > position)
}

/// Joins the spans of all tokens: one cube a token and head, one unit for each four dimensions.
#[cube(launch_unchecked)]
pub(super) fn join_kernel(
    records: &[Vec4],
    plan: &[u32],
    o: &mut [Vec4],
    rows: usize,
    positions_at: usize,
    joins_at: usize,
    num_heads: usize,
    window: usize,
    #[comptime] tile: Tile,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let vectors = comptime!(tile.head_dim / 4);
    let unit = UNIT_POS as usize;
    let (token, head) = (row / num_heads, row % num_heads);
    let join = joins_at + token * JOIN_WORDS;
    let first_item = plan[join] as usize;
    let place = plan[join + 1] as usize;
    let first_span = plan[join + 2] as usize;
    let spans = plan[join + 3] as usize;
    let position = plan[positions_at + token] as usize;
    if unit < vectors && spans > 0 {
        let mut largest = HIDDEN.runtime();
        let mut total = 0.0f32.runtime();
        let mut sum = Vec4::new(0.0f32);
        for s in 0..spans {
            if sees(position, (first_span + s) * SPAN, window) {
                let record = ((first_item + s) * comptime!(tile.tokens) + place) * num_heads + head;
                let at = record * comptime!(vectors + 1);
                let head_sums = records[at + vectors];
                let (old, new, max) = factors(largest, head_sums.extract(0usize));
                largest = max;
                total = fma(head_sums.extract(1usize), new, total * old);
                sum = fma(records[at + unit], Vector::new(new), sum * Vector::new(old));
            }
        }
        o[row * vectors + unit] = sum / Vector::new(total);
    }
}
