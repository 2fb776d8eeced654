//! `q·k` of a tile with the keys of a span.

use super::span::{Span, SpanHead};
use crate::simd::{Element, LANES, Simd, Tiles};

/// Vectors of keys that stay in L1 while all rows pass over them.
const CHUNK: usize = 4;

/// Fills the seen vectors of `scores` `[rows, lanes]` with products, not yet scaled or masked.
#[inline(always)]
pub(super) fn fill<S: Simd, E: Element>(
    s: S,
    head: &SpanHead<'_, E>,
    tiles: Tiles,
    queries: &[E::Step<S>],
    scores: &mut [f32],
) {
    let layout = head.span.layout;
    let (lanes, steps) = (Span::lanes(layout), layout.head_dim / E::INPUTS);
    let vectors = &head.vectors;
    for first in vectors.clone().step_by(CHUNK) {
        let count = CHUNK.min(vectors.end - first);
        for tile in tiles.clone() {
            let x = &queries[tile.start * steps..tile.end * steps];
            let rows = &mut scores[tile.start * lanes..tile.end * lanes];
            match tile.len() {
                4 => chunk::<S, E, 4>(s, head, first, count, x, rows),
                3 => chunk::<S, E, 3>(s, head, first, count, x, rows),
                2 => chunk::<S, E, 2>(s, head, first, count, x, rows),
                _ => chunk::<S, E, 1>(s, head, first, count, x, rows),
            }
        }
    }
}

/// `count` vectors of keys, together where the registers hold their sums.
#[inline(always)]
fn chunk<S: Simd, E: Element, const R: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    count: usize,
    x: &[E::Step<S>],
    rows: &mut [f32],
) {
    if count == CHUNK && R * CHUNK <= S::TILE_VECTORS {
        products::<S, E, R, CHUNK>(s, head, first, x, rows);
    } else {
        for v in first..first + count {
            products::<S, E, R, 1>(s, head, v, x, rows);
        }
    }
}

/// `R` rows with `N` vectors of keys.
#[inline(always)]
fn products<S: Simd, E: Element, const R: usize, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    x: &[E::Step<S>],
    rows: &mut [f32],
) {
    let keys: [&[E::Group]; N] = std::array::from_fn(|n| head.keys[first - head.vectors.start + n]);
    let mut sums = [[s.splat(0.0); N]; R];
    for (i, x) in x.as_chunks::<R>().0.iter().enumerate() {
        for n in 0..N {
            let w = &keys[n][i * head.stride];
            for r in 0..R {
                sums[r][n] = E::fma(s, sums[r][n], x[r], w);
            }
        }
    }
    let lanes = rows.len() / R;
    for (row, sums) in rows.chunks_exact_mut(lanes).zip(sums) {
        let row = &mut row.as_chunks_mut::<LANES>().0[first..first + N];
        for (out, sum) in row.iter_mut().zip(sums) {
            s.store(out, sum);
        }
    }
}
