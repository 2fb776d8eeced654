//! `Σ weight · v` of a tile over a span.

use super::span::{Span, SpanHead};
use super::tile::RowState;
use crate::simd::{Element, LANES, Simd, Tiles};

/// Vectors of a value that a register tile takes, at most.
const DIMS: usize = 4;

/// `o = o · rescale + Σ weight · v`, for o `[rows, value_dim]` and weights `[rows, lanes]`.
#[inline(always)]
pub(super) fn add<S: Simd, E: Element>(
    s: S,
    head: &SpanHead<'_, E>,
    tiles: Tiles,
    weights: &[f32],
    state: &[RowState],
    o: &mut [f32],
) {
    let layout = head.span.layout;
    let (lanes, dim) = (Span::lanes(layout), layout.value_dim);
    for tile in tiles {
        let part = Part {
            weights: &weights[tile.start * lanes..tile.end * lanes],
            state: &state[tile.clone()],
            o: &mut o[tile.start * dim..tile.end * dim],
        };
        match tile.len() {
            4 => rows::<S, E, 4>(s, head, part),
            3 => rows::<S, E, 3>(s, head, part),
            2 => rows::<S, E, 2>(s, head, part),
            _ => rows::<S, E, 1>(s, head, part),
        }
    }
}

/// The rows of one register tile.
struct Part<'a> {
    weights: &'a [f32],
    state: &'a [RowState],
    o: &'a mut [f32],
}

/// All dimensions, as many at a time as the registers hold.
#[inline(always)]
fn rows<S: Simd, E: Element, const R: usize>(s: S, head: &SpanHead<'_, E>, mut part: Part<'_>) {
    let vectors = head.span.layout.value_dim / LANES;
    let mut first = 0;
    while first < vectors {
        let left = vectors - first;
        if left >= DIMS && R * DIMS <= S::TILE_VECTORS {
            dims::<S, E, R, DIMS>(s, head, first, &mut part);
            first += DIMS;
        } else if left >= 2 && R * 2 <= S::TILE_VECTORS {
            dims::<S, E, R, 2>(s, head, first, &mut part);
            first += 2;
        } else {
            dims::<S, E, R, 1>(s, head, first, &mut part);
            first += 1;
        }
    }
}

/// `N` vectors of dimensions of `R` rows.
#[inline(always)]
fn dims<S: Simd, E: Element, const R: usize, const N: usize>(
    s: S,
    head: &SpanHead<'_, E>,
    first: usize,
    part: &mut Part<'_>,
) {
    let (lanes, dim) = (part.weights.len() / R, head.span.layout.value_dim);
    let mut sums = [[s.splat(0.0); N]; R];
    for (lane, values) in &head.values {
        let tokens = values.len() / dim;
        let weights: [&[f32]; R] =
            std::array::from_fn(|r| &part.weights[r * lanes + *lane..][..tokens]);
        sums = block::<S, E, R, N>(s, sums, weights, &values[first * LANES..], dim);
    }
    for (r, sums) in sums.into_iter().enumerate() {
        let o = &mut part.o[r * dim..(r + 1) * dim].as_chunks_mut::<LANES>().0[first..first + N];
        let rescale = s.splat(part.state[r].rescale);
        for (o, sum) in o.iter_mut().zip(sums) {
            s.store(o, s.fma(s.load(o), rescale, sum));
        }
    }
}

/// Adds the values of one block, `dim` apart, to the sums.
#[inline(always)]
fn block<S: Simd, E: Element, const R: usize, const N: usize>(
    s: S,
    mut sums: [[S::V; N]; R],
    weights: [&[f32]; R],
    values: &[E],
    dim: usize,
) -> [[S::V; N]; R] {
    for j in 0..weights[0].len() {
        let value = &values[j * dim..][..N * LANES];
        let value: [S::V; N] = std::array::from_fn(|n| E::widen_at(s, value, n));
        for (sums, weights) in sums.iter_mut().zip(weights) {
            let weight = s.splat(weights[j]);
            for (sum, v) in sums.iter_mut().zip(value) {
                *sum = s.fma(weight, v, *sum);
            }
        }
    }
    sums
}
