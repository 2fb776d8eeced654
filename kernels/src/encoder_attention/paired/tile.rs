//! A register tile of rows over a span of keys: scores, softmax and weighted sums.

use std::ops::Range;

use super::pack::Line;
use super::{BLOCK, Piece};
use crate::simd::{LANES, Simd, exp, max_of, sum_of};

/// Most rows of a tile: each has two of the 24 vectors that the registers hold beside operands.
pub(super) const ROWS_MAX: usize = 12;

/// Keys and values of one head that are laid out.
pub(super) struct Span<'a> {
    pub(super) piece: &'a Piece<'a>,
    /// The position of the first key.
    pub(super) start: usize,
    /// The number of keys.
    pub(super) len: usize,
    /// Chunks of a head.
    pub(super) chunks: usize,
    /// `[block][chunk][pair]`
    pub(super) keys: &'a [[Line; 2]],
    /// `[chunk][block][pair]`
    pub(super) values: &'a [[Line; 2]],
}

/// Scores of a tile, and the weights that they become, both `[block][row]`.
type Memory<'a> = (&'a mut [[[f32; LANES]; 2]], &'a mut [[u32; LANES]]);

/// The weighted sums of a tile, `[row][vector of elements]`, and the largest score and the sum of
/// the weights of each row.
type Totals<'a> = (&'a mut [[f32; LANES]], &'a mut [[f32; 2]]);

impl Span<'_> {
    /// Adds the span to the totals of the rows `tile`, whose queries are `[chunk][row]`.
    #[inline(always)]
    pub(super) fn add<S: Simd>(
        &self,
        s: S,
        tile: &Range<usize>,
        queries: &[[u32; LANES]],
        memory: Memory<'_>,
        totals: Totals<'_>,
    ) {
        match tile.len() {
            12 => self.rows::<S, 12>(s, tile.start, queries, memory, totals),
            8 => self.rows::<S, 8>(s, tile.start, queries, memory, totals),
            4 => self.rows::<S, 4>(s, tile.start, queries, memory, totals),
            3 => self.rows::<S, 3>(s, tile.start, queries, memory, totals),
            2 => self.rows::<S, 2>(s, tile.start, queries, memory, totals),
            _ => self.rows::<S, 1>(s, tile.start, queries, memory, totals),
        }
    }

    /// Returns the keys of the span that row `r` sees, counted from the span's first.
    fn seen(&self, r: usize) -> Range<usize> {
        let Range { start, end } = self.piece.seen(r);
        start.max(self.start) - self.start
            ..end.clamp(self.start, self.start + self.len) - self.start
    }

    #[inline(always)]
    fn rows<S: Simd, const R: usize>(
        &self,
        s: S,
        first: usize,
        queries: &[[u32; LANES]],
        (scores, weights): Memory<'_>,
        (sums, softmax): Totals<'_>,
    ) {
        let (start, end) = (self.seen(first).start, self.seen(first + R - 1).end);
        if start >= end {
            return;
        }
        let blocks = start / BLOCK..end.div_ceil(BLOCK);
        let scores = &mut scores.as_chunks_mut::<R>().0[..blocks.len()];
        let weights = &mut weights.as_chunks_mut::<R>().0[..blocks.len()];
        let queries = queries.as_chunks::<R>().0;
        let keys = self.keys.as_chunks::<LANES>().0.chunks_exact(self.chunks);
        for (keys, scores) in keys.skip(blocks.start).zip(scores.iter_mut()) {
            products(s, queries, keys, scores);
        }
        let mut factors = [0.0; R];
        for (r, (factor, total)) in factors.iter_mut().zip(softmax).enumerate() {
            *factor = self.weigh(s, (first, r), blocks.start, scores, weights, total);
        }
        let all_blocks = self.len.div_ceil(BLOCK);
        let values = self.values.as_chunks::<LANES>().0.chunks_exact(all_blocks);
        for (c, values) in values.take(self.chunks).enumerate() {
            let place = (c, self.chunks);
            weighted_sums(s, place, weights, &values[blocks.clone()], &factors, sums);
        }
    }

    /// Turns the products of row `r` of the tile from `first` on into weights, relative to the
    /// largest score so far. Returns the factor of the sums so far.
    #[inline(always)]
    fn weigh<S: Simd, const R: usize>(
        &self,
        s: S,
        (first, r): (usize, usize),
        first_block: usize,
        scores: &mut [[[[f32; LANES]; 2]; R]],
        weights: &mut [[[u32; LANES]; R]],
        total: &mut [f32; 2],
    ) -> f32 {
        let params = self.piece.batch.params;
        let (position, head) = self.piece.position_and_head(first + r);
        let seen = self.seen(first + r);
        let mut max = s.splat(f32::NEG_INFINITY);
        for (block, scores) in scores.iter_mut().enumerate() {
            for (half, x) in scores[r].iter_mut().enumerate() {
                let at = (first_block + block) * BLOCK + half * LANES;
                if at >= seen.end || at + LANES <= seen.start {
                    *x = [f32::NEG_INFINITY; LANES];
                    continue;
                }
                if let Some(biases) = &params.distance_biases {
                    let distance = (self.start + at) as i64 - position as i64;
                    let biases = s.load(&biases.lanes(head, distance));
                    let score = s.fma(s.load(x), s.splat(params.scale), biases);
                    s.store(x, score);
                }
                if at < seen.start || at + LANES > seen.end {
                    x[..seen.start.saturating_sub(at)].fill(f32::NEG_INFINITY);
                    x[(seen.end - at).min(LANES)..].fill(f32::NEG_INFINITY);
                }
                max = s.max(s.load(x), max);
            }
        }
        // Scores with biases are scaled now. Others are scaled where they are used, and the scale
        // is above 0, so it keeps their order.
        let scale = if params.distance_biases.is_some() { 1.0 } else { params.scale };
        let max = total[0].max(max_of(s, max) * scale);
        // A row may see no key of the span, nor of those before. Its weights are then 0.
        let shift = s.splat(if max == f32::NEG_INFINITY { 0.0 } else { -max });
        let (scale, mut sum) = (s.splat(scale), s.splat(0.0));
        for (scores, weights) in scores.iter().zip(weights) {
            let [low, high] = &scores[r];
            let even = exp(s, s.fma(s.load(low), scale, shift));
            let odd = exp(s, s.fma(s.load(high), scale, shift));
            sum = s.add(s.add(sum, even), odd);
            s.narrow_pairs(bytemuck::cast_mut::<_, Line>(&mut weights[r]), even, odd);
        }
        let factor = if total[0] == max { 1.0 } else { (total[0] - max).exp() };
        *total = [max, total[1] * factor + sum_of(s, sum)];
        factor
    }
}

/// Multiplies `R` rows, `[chunk][row]`, with a block of keys.
#[inline(always)]
fn products<S: Simd, const R: usize>(
    s: S,
    queries: &[[[u32; LANES]; R]],
    keys: &[[[Line; 2]; LANES]],
    scores: &mut [[[f32; LANES]; 2]; R],
) {
    let mut sums = [[s.splat(0.0); 2]; R];
    for (queries, keys) in queries.iter().zip(keys) {
        for (i, keys) in keys.iter().enumerate() {
            for (sums, query) in sums.iter_mut().zip(queries) {
                for (sum, keys) in sums.iter_mut().zip(keys) {
                    *sum = s.dot_bf16(*sum, query[i], keys);
                }
            }
        }
    }
    // Nested loops, because an iterator over all would keep the sums in memory.
    for (scores, sums) in scores.iter_mut().zip(&sums) {
        for (scores, sum) in scores.iter_mut().zip(sums) {
            s.store(scores, *sum);
        }
    }
}

/// Multiplies the totals of chunk `c` by the rows' factors, and adds the weighted values of some
/// blocks.
#[inline(always)]
fn weighted_sums<S: Simd, const R: usize>(
    s: S,
    (c, chunks): (usize, usize),
    weights: &[[[u32; LANES]; R]],
    values: &[[[Line; 2]; LANES]],
    factors: &[f32; R],
    totals: &mut [[f32; LANES]],
) {
    let mut sums = [[s.splat(0.0); 2]; R];
    let rows = totals.chunks_exact(2 * chunks).zip(factors);
    for (sums, (totals, factor)) in sums.iter_mut().zip(rows) {
        for (sum, total) in sums.iter_mut().zip(&totals[2 * c..]) {
            *sum = s.mul(s.load(total), s.splat(*factor));
        }
    }
    for (weights, values) in weights.iter().zip(values) {
        for (i, values) in values.iter().enumerate() {
            for (sums, weights) in sums.iter_mut().zip(weights) {
                for (sum, values) in sums.iter_mut().zip(values) {
                    *sum = s.dot_bf16(*sum, weights[i], values);
                }
            }
        }
    }
    for (totals, sums) in totals.chunks_exact_mut(2 * chunks).zip(&sums) {
        for (total, sum) in totals[2 * c..].iter_mut().zip(sums) {
            s.store(total, *sum);
        }
    }
}
