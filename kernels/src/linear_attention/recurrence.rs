//! The recurrence over tokens, for some neighbouring columns of one head's state.
//!
//! Columns of a state do not depend on each other. So a tile of columns stays in the cache while
//! all tokens of a sequence pass. The order of additions is that of the rows of the state. It does
//! not depend on the tokens of a step.

use std::ops::Range;

use super::LinearHeads;
use super::shape::Tile;
use crate::simd::{Kernel, LANES, Simd};
use crate::threads::SharedMut;

/// The factors of one token and head: that of the state before the token, and that of the change,
/// which only the delta rule has.
pub(super) type Factors = [f32; 2];

/// The inputs of all tokens and heads.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) heads: LinearHeads,
    /// `[num_tokens, heads.inputs()]`: queries, keys and values, with the factors of queries and
    /// keys.
    pub(super) qkv: &'a [f32],
    /// `[num_tokens, num_heads]`, or `[num_heads]` for all tokens.
    pub(super) factors: &'a [Factors],
    /// The factors of a token: the number of heads, or 0 if all tokens share them.
    pub(super) factors_per_token: usize,
}

/// A rule for the row that a token adds to the state, times its key. Implementations are
/// `#[inline(always)]`.
pub(super) trait Rule: Copy + Send + Sync {
    /// Returns that row for the columns `rows`, `[key_dim, columns]`, of the state before the
    /// token.
    fn added<S: Simd, const N: usize>(
        self,
        s: S,
        rows: &[[[f32; LANES]; N]],
        k: &[f32],
        v: [S::V; N],
        factors: Factors,
    ) -> [S::V; N];
}

/// `S ← d·S + k·(β·(v − d·Sᵀk))ᵀ`.
#[derive(Clone, Copy)]
pub(super) struct Delta;

impl Rule for Delta {
    #[inline(always)]
    fn added<S: Simd, const N: usize>(
        self,
        s: S,
        rows: &[[[f32; LANES]; N]],
        k: &[f32],
        mut v: [S::V; N],
        [decay, beta]: Factors,
    ) -> [S::V; N] {
        let mut read = [s.splat(0.0); N];
        for (row, k) in rows.iter().zip(k) {
            let k = s.splat(*k);
            for (sum, x) in read.iter_mut().zip(row) {
                *sum = s.fma(s.load(x), k, *sum);
            }
        }
        for (v, read) in v.iter_mut().zip(read) {
            *v = s.mul(s.fma(read, s.splat(-decay), *v), s.splat(beta));
        }
        v
    }
}

/// `S ← d·S + k·vᵀ`.
#[derive(Clone, Copy)]
pub(super) struct Sum;

impl Rule for Sum {
    #[inline(always)]
    fn added<S: Simd, const N: usize>(
        self,
        _: S,
        _: &[[[f32; LANES]; N]],
        _: &[f32],
        v: [S::V; N],
        _: Factors,
    ) -> [S::V; N] {
        v
    }
}

/// The task of computing some tokens of one sequence for a tile of columns of one head.
pub(super) struct TileTask<'a, R> {
    pub(super) rule: R,
    pub(super) inputs: Inputs<'a>,
    pub(super) tokens: Range<usize>,
    pub(super) tile: Tile,
    /// The tile's part of the state, `[key_dim, tile's columns]`.
    pub(super) state: &'a mut [f32],
    /// `[num_tokens, num_heads · value_dim]`.
    pub(super) y: &'a SharedMut<'a, f32>,
}

impl<R: Rule> Kernel for TileTask<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.tile.vectors {
            1 => self.tokens::<S, 1>(s),
            2 => self.tokens::<S, 2>(s),
            3 => self.tokens::<S, 3>(s),
            _ => self.tokens::<S, 4>(s),
        }
    }
}

impl<R: Rule> TileTask<'_, R> {
    #[inline(always)]
    fn tokens<S: Simd, const N: usize>(self, s: S) {
        let Self { inputs, tile, .. } = self;
        let heads = inputs.heads;
        let (rows, _) = self.state.as_chunks_mut::<LANES>().0.as_chunks_mut::<N>();
        for token in self.tokens {
            let [q, k, v] = heads.rows_of(inputs.qkv, token, &tile);
            let mut padded = [[0.0; LANES]; N];
            padded.as_flattened_mut()[..v.len()].copy_from_slice(v);
            let mut values = [s.splat(0.0); N];
            for (value, v) in values.iter_mut().zip(&padded) {
                *value = s.load(v);
            }
            let factors = inputs.factors[token * inputs.factors_per_token + tile.head];
            let added = self.rule.added(s, rows, k, values, factors);
            let y = advance(s, rows, [q, k], added, factors[0]);
            for (out, y) in padded.iter_mut().zip(y) {
                s.store(out, y);
            }
            // SAFETY: no other piece has this tile of this token.
            let out = unsafe { self.y.slice(heads.output_at(token, &tile), v.len()) };
            out.copy_from_slice(&padded.as_flattened()[..v.len()]);
        }
    }
}

/// Takes the state over one token, which adds `added` times its key, and returns the output
/// `Sᵀq`.
#[inline(always)]
pub(super) fn advance<S: Simd, const N: usize>(
    s: S,
    rows: &mut [[[f32; LANES]; N]],
    [q, k]: [&[f32]; 2],
    added: [S::V; N],
    decay: f32,
) -> [S::V; N] {
    let (decay, mut y) = (s.splat(decay), [s.splat(0.0); N]);
    for ((row, q), k) in rows.iter_mut().zip(q).zip(k) {
        let (q, k) = (s.splat(*q), s.splat(*k));
        for ((x, added), y) in row.iter_mut().zip(&added).zip(&mut y) {
            let next = s.fma(s.load(x), decay, s.mul(k, *added));
            s.store(x, next);
            *y = s.fma(next, q, *y);
        }
    }
    y
}
