//! The sums `Σ weight · v` of a tile over a span, where a value is the first elements of its key.
//!
//! Sixteen keys lie side by side, so a vector holds one dimension of each. A sum has sixteen lanes,
//! one for each place of a key among sixteen, which are added at the end of the span. So no value
//! is stored a second time in rows.

use std::ops::Range;

use super::span::{Span, SpanHead};
use super::tile::rows_max;
use crate::kv_cache::KvElement;
use crate::simd::{LANES, Simd, Tiles, sum_of};

/// Fills `sums` `[rows, value_dim]` from the weights, which have the layout of scores. Takes as
/// many dimensions at a time as the registers hold sums for a register tile.
#[inline(always)]
pub(super) fn fill<S: Simd, E: KvElement>(
    s: S,
    head: &SpanHead<'_, E>,
    tiles: Tiles,
    weights: &[f32],
    sums: &mut [f32],
) {
    let layout = head.span.layout;
    let (lanes, dim) = (Span::lanes(layout), layout.value_dim);
    for tile in tiles {
        let weights = weights[tile.start * lanes..tile.end * lanes].as_chunks().0;
        let sums = &mut sums[tile.start * dim..tile.end * dim];
        match tile.len() {
            12 if const { rows_max::<S>() >= 12 } => rows::<S, E, 12>(s, head, weights, sums),
            8 if const { rows_max::<S>() >= 8 } => rows::<S, E, 8>(s, head, weights, sums),
            6 if const { rows_max::<S>() == 6 } => rows::<S, E, 6>(s, head, weights, sums),
            4 if const { rows_max::<S>() >= 4 } => rows::<S, E, 4>(s, head, weights, sums),
            3 if const { rows_max::<S>() >= 3 } => rows::<S, E, 3>(s, head, weights, sums),
            2 if const { rows_max::<S>() >= 2 } => rows::<S, E, 2>(s, head, weights, sums),
            _ => rows::<S, E, 1>(s, head, weights, sums),
        }
    }
}

/// Sums all dimensions for `R` rows, and clears their padding.
#[inline(always)]
fn rows<S: Simd, E: KvElement, const R: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    weights: &[[f32; LANES]],
    sums: &mut [f32],
) {
    let (len, dim) = (head.span.layout.value_head_dim, head.span.layout.value_dim);
    sums.chunks_exact_mut(dim).for_each(|row| row[len..].fill(0.0));
    let most = S::TILE_VECTORS / R;
    let mut first = 0;
    while first < len {
        let left = most.min(len - first);
        first += if const { R * 8 <= S::TILE_VECTORS } && left >= 8 {
            dims::<S, E, R, 8>(s, head, first, weights, sums)
        } else if const { R * 4 <= S::TILE_VECTORS } && left >= 4 {
            dims::<S, E, R, 4>(s, head, first, weights, sums)
        } else if const { R * 2 <= S::TILE_VECTORS } {
            // The number of dimensions is even.
            dims::<S, E, R, 2>(s, head, first, weights, sums)
        } else {
            dims::<S, E, R, 1>(s, head, first, weights, sums)
        };
    }
}

/// Sums `N` dimensions from `first` on for `R` rows. Returns `N`.
#[inline(always)]
fn dims<S: Simd, E: KvElement, const R: usize, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    weights: &[[f32; LANES]],
    out: &mut [f32],
) -> usize {
    let (span, stride) = (head.span, head.stride());
    let mut sums = [[s.splat(0.0); N]; R];
    for v in span.vectors() {
        let keys = head.keys(v).groups;
        let lanes = span.lanes_in_use(v);
        let is_whole = lanes == (0..LANES);
        // Closures do not inherit the instruction set, hence the loop.
        let mut values = [s.splat(0.0); N];
        for (n, value) in values.iter_mut().enumerate() {
            let d = first + n;
            *value = E::widen_dim(s, &keys[d / E::INPUTS * stride], d % E::INPUTS);
            if !is_whole {
                *value = within(s, *value, &lanes);
            }
        }
        let weights = &weights[v * R..].as_chunks::<R>().0[0];
        for (sums, weights) in sums.iter_mut().zip(weights) {
            // A weight has the scale of its key, which is NaN in a lane with old content.
            let weight = s.load(weights);
            let weight = if is_whole { weight } else { within(s, weight, &lanes) };
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = s.fma(weight, value, *sum);
            }
        }
    }
    let dim = span.layout.value_dim;
    for (out, sums) in out.chunks_exact_mut(dim).zip(sums) {
        for (out, sum) in out[first..first + N].iter_mut().zip(sums) {
            *out = sum_of(s, sum);
        }
    }
    N
}

/// Returns `v` in these lanes, and 0 in the others. Those hold old content of a block, which may be
/// NaN.
#[inline(always)]
fn within<S: Simd>(s: S, v: S::V, lanes: &Range<usize>) -> S::V {
    let mut elements = [0.0; LANES];
    s.store(&mut elements, v);
    elements[..lanes.start].fill(0.0);
    elements[lanes.end..].fill(0.0);
    s.load(&elements)
}
