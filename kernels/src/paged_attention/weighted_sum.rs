//! The sums `Σ weight · v` of a tile over a span.

use super::span::{Span, SpanHead};
use super::tile::rows_max;
use crate::kv_cache::KvElement;
use crate::simd::{LANES, Simd, Tiles, prefetch_l2};

const CACHE_LINE_BYTES: usize = 64;

/// Fills `sums` `[rows, value_dim]` from the weights, which have the layout of scores. Takes as
/// many dimensions at a time as the registers hold sums for the largest register tile. Those
/// dimensions of all values stay in L1 while the rows pass over them.
#[inline(always)]
pub(super) fn fill<S: Simd, E: KvElement>(
    s: S,
    head: &SpanHead<'_, E>,
    tiles: Tiles,
    weights: &[f32],
    sums: &mut [f32],
) {
    let vectors = head.span.layout.value_dim / LANES;
    let largest = tiles.clone().next().map_or(1, |tile| tile.len());
    let most = S::TILE_VECTORS / largest;
    let mut first = 0;
    while first < vectors {
        let left = most.min(vectors - first);
        let count = if left >= 8 {
            8
        } else if left >= 4 {
            4
        } else if left >= 2 {
            2
        } else {
            1
        };
        for tile in tiles.clone() {
            match count {
                8 if const { S::TILE_VECTORS >= 8 } => {
                    rows::<S, E, 8>(s, head, first, tile, weights, sums)
                }
                4 if const { S::TILE_VECTORS >= 4 } => {
                    rows::<S, E, 4>(s, head, first, tile, weights, sums)
                }
                2 if const { S::TILE_VECTORS >= 2 } => {
                    rows::<S, E, 2>(s, head, first, tile, weights, sums)
                }
                _ => rows::<S, E, 1>(s, head, first, tile, weights, sums),
            }
        }
        first += count;
    }
}

/// Sums `N` vectors of dimensions for the rows of a register tile.
#[inline(always)]
fn rows<S: Simd, E: KvElement, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    tile: std::ops::Range<usize>,
    weights: &[f32],
    sums: &mut [f32],
) {
    let layout = head.span.layout;
    let (lanes, dim) = (Span::lanes(layout), layout.value_dim);
    let weights = &weights[tile.start * lanes..tile.end * lanes];
    let sums = &mut sums[tile.start * dim..tile.end * dim];
    let weights = weights.as_chunks().0;
    match tile.len() {
        12 if const { rows_max::<S>() >= 12 } => dims::<S, E, 12, N>(s, head, first, weights, sums),
        8 if const { rows_max::<S>() >= 8 } => dims::<S, E, 8, N>(s, head, first, weights, sums),
        6 if const { rows_max::<S>() == 6 } => dims::<S, E, 6, N>(s, head, first, weights, sums),
        4 if const { rows_max::<S>() >= 4 } => dims::<S, E, 4, N>(s, head, first, weights, sums),
        3 if const { rows_max::<S>() >= 3 } => dims::<S, E, 3, N>(s, head, first, weights, sums),
        2 if const { rows_max::<S>() >= 2 } => dims::<S, E, 2, N>(s, head, first, weights, sums),
        _ => dims::<S, E, 1, N>(s, head, first, weights, sums),
    }
}

/// Sums `N` vectors of dimensions for `R` rows.
#[inline(always)]
fn dims<S: Simd, E: KvElement, const R: usize, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    weights: &[[f32; LANES]],
    out: &mut [f32],
) {
    // A constant, so that no code is compiled for these sizes.
    if const { R * N > S::TILE_VECTORS } {
        unreachable!("{R} rows of {N} vectors are more than the registers hold");
    }
    let (dim, vectors) = (out.len() / R, head.span.vectors());
    let mut sums = [[s.splat(0.0); N]; R];
    for v in vectors.clone() {
        let (values, lanes) = head.values(v);
        let next = head.after_values(v);
        let weights = &weights[v * R..].as_chunks::<R>().0[0];
        let values = values[lanes.start * dim + first * LANES..].chunks(dim);
        for (j, value) in lanes.zip(values) {
            let at = j * dim + first * LANES;
            for line in (0..N * LANES).step_by(CACHE_LINE_BYTES / size_of::<E>()) {
                prefetch_l2(next.wrapping_add((at + line) * size_of::<E>()));
            }
            let value = &value[..N * LANES];
            // Closures do not inherit the instruction set, hence the loop.
            let mut widened = [s.splat(0.0); N];
            for (n, widened) in widened.iter_mut().enumerate() {
                *widened = E::widen_at(s, value, n);
            }
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let weight = s.splat(weights[j % LANES]);
                for (sum, v) in sums.iter_mut().zip(widened) {
                    *sum = s.fma(weight, v, *sum);
                }
            }
        }
    }
    for (out, sums) in out.chunks_exact_mut(dim).zip(sums) {
        let out = &mut out.as_chunks_mut::<LANES>().0[first..first + N];
        for (out, sum) in out.iter_mut().zip(sums) {
            s.store(out, sum);
        }
    }
}
