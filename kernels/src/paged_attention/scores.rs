//! The products `q·k` of a tile with the keys of a span.

use super::span::{Keys, Span, SpanHead};
use super::tile::rows_max;
use crate::kv_cache::KvElement;
use crate::simd::{LANES, Simd, Tiles, prefetch_l2};
use crate::workspace::Scratch;

/// Bytes of keys that stay in L1 while all rows pass over them.
const CHUNK_BYTES: usize = 1 << 14;

/// Lays out the steps of each register tile as `[step][row of the tile]`, tile after tile, so that
/// a tile reads forward from one place.
#[inline(always)]
pub(super) fn pack<'a, S: Simd, E: KvElement>(
    s: S,
    rows: usize,
    tiles: Tiles,
    query: impl Fn(usize) -> &'a [f32],
    steps: usize,
) -> Scratch<E::Step<S>> {
    let (mut packed, mut row) = (Scratch::new(rows * steps), Scratch::new(steps));
    for tile in tiles {
        let out = &mut packed[tile.start * steps..tile.end * steps];
        for (r, index) in tile.clone().enumerate() {
            E::steps(s, query(index), &mut row);
            for (out, x) in out.iter_mut().skip(r).step_by(tile.len()).zip(&*row) {
                *out = *x;
            }
        }
    }
    packed
}

/// Fills the seen vectors of `scores` with products, not yet scaled or masked. Scores, and later
/// the weights, lie as `[vector of lanes][row]` in each register tile. The elements that a tile
/// needs of a vector are thus side by side.
#[inline(always)]
pub(super) fn fill<S: Simd, E: KvElement>(
    s: S,
    head: &SpanHead<'_, E>,
    tiles: Tiles,
    queries: &[E::Step<S>],
    scores: &mut [f32],
) {
    let layout = head.span.layout;
    let (lanes, steps) = (Span::lanes(layout), layout.head_dim / E::INPUTS);
    let vectors = head.span.vectors();
    let chunk_len = (CHUNK_BYTES / (steps * size_of::<E::Group>())).max(2);
    for first in vectors.clone().step_by(chunk_len) {
        let end = vectors.end.min(first + chunk_len);
        for tile in tiles.clone() {
            let x = &queries[tile.start * steps..tile.end * steps];
            let rows = scores[tile.start * lanes..tile.end * lanes].as_chunks_mut().0;
            match tile.len() {
                12 if const { rows_max::<S>() >= 12 } => {
                    chunk::<S, E, 12>(s, head, first..end, x, rows)
                }
                8 if const { rows_max::<S>() >= 8 } => {
                    chunk::<S, E, 8>(s, head, first..end, x, rows)
                }
                6 if const { rows_max::<S>() == 6 } => {
                    chunk::<S, E, 6>(s, head, first..end, x, rows)
                }
                4 if const { rows_max::<S>() >= 4 } => {
                    chunk::<S, E, 4>(s, head, first..end, x, rows)
                }
                3 if const { rows_max::<S>() >= 3 } => {
                    chunk::<S, E, 3>(s, head, first..end, x, rows)
                }
                2 if const { rows_max::<S>() >= 2 } => {
                    chunk::<S, E, 2>(s, head, first..end, x, rows)
                }
                _ => chunk::<S, E, 1>(s, head, first..end, x, rows),
            }
        }
    }
}

/// Multiplies some vectors of keys, as many together as the registers hold sums.
#[inline(always)]
fn chunk<S: Simd, E: KvElement, const R: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    vectors: std::ops::Range<usize>,
    x: &[E::Step<S>],
    scores: &mut [[f32; LANES]],
) {
    let mut v = vectors.start;
    while v < vectors.end {
        if const { R * 2 <= S::TILE_VECTORS } && vectors.end - v >= 2 {
            products::<S, E, R, 2>(s, head, v, x, scores);
            v += 2;
        } else {
            products::<S, E, R, 1>(s, head, v, x, scores);
            v += 1;
        }
    }
}

/// Multiplies `R` rows with `N` vectors of keys.
#[inline(always)]
fn products<S: Simd, E: KvElement, const R: usize, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    x: &[E::Step<S>],
    scores: &mut [[f32; LANES]],
) {
    let stride = head.stride();
    // Looked up here, because a call within the loop would spill the register tile.
    let keys: [Keys<'_, E>; N] = std::array::from_fn(|n| head.keys(first + n));
    let next: [*const u8; N] = std::array::from_fn(|n| head.after_keys(first + N - 1, n));
    let step_bytes = stride * size_of::<E::Group>();
    let mut sums = [[s.splat(0.0); N]; R];
    for (i, x) in x.as_chunks::<R>().0.iter().enumerate() {
        for next in next {
            prefetch_l2(next.wrapping_add(i * step_bytes));
        }
        for r in 0..R {
            for n in 0..N {
                sums[r][n] = E::fma(s, sums[r][n], &x[r], &keys[n].groups[i * stride]);
            }
        }
    }
    for (n, keys) in keys.iter().enumerate() {
        let out = &mut scores[(first + n) * R..][..R];
        for (out, sums) in out.iter_mut().zip(&sums) {
            let sum = match keys.scales.first() {
                Some(scales) => s.mul(sums[n], s.load(scales)),
                None => sums[n],
            };
            s.store(out, sum);
        }
    }
}
