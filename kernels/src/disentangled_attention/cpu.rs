//! The native version: four queries of a head at a time.

use burn_flex::FlexTensor;

use super::{DisentangledAttention, Table};
use crate::AttentionMetadata;
use crate::simd::{Isa, Kernel, LANES, Simd, Task, exp, max_of, sum_of};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::{Scratch, give_back, tensor};

/// Queries that are computed together.
const QUERIES: usize = 4;

/// Computes attention on CPU tensors.
pub(super) fn disentangled_attention(
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    meta: &AttentionMetadata,
    attention: &DisentangledAttention,
) -> FlexTensor {
    let shape = [meta.num_tokens(), attention.num_heads * attention.head_dim];
    let given = [dims2(&q), dims2(&k), dims2(&v)];
    assert_eq!(given, [shape; 3], "disentangled_attention: shapes");
    let [q, k, v] = [q, k, v].map(dense);
    let mut o = tensor(shape[0], shape[1]);
    let rows = [values(&q), values(&k), values(&v)];
    attend(Isa::active(), rows, meta, attention, values_mut(&mut o));
    [q, k, v].into_iter().for_each(give_back);
    o
}

/// Computes attention of the rows q, k and v on one instruction set.
pub(super) fn attend(
    isa: Isa,
    rows: [&[f32]; 3],
    meta: &AttentionMetadata,
    attention: &DisentangledAttention,
    o: &mut [f32],
) {
    for (seq, &len) in meta.seq_lens.iter().enumerate() {
        let positions = &meta.positions[meta.tokens_of(seq)];
        let is_whole = positions.iter().copied().eq(0..len);
        let is_short = len as usize <= attention.positions;
        assert!(is_whole && is_short, "disentangled_attention: sequence {seq} of {len} tokens");
    }
    isa.run(Batch { rows, meta, attention, o: SharedMut::new(o) });
}

/// The whole batch.
struct Batch<'a> {
    /// q, k and v.
    rows: [&'a [f32]; 3],
    meta: &'a AttentionMetadata,
    attention: &'a DisentangledAttention,
    o: SharedMut<'a, f32>,
}

impl Kernel for Batch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (batch, heads) = (&self, self.attention.num_heads);
        let pairs: usize = self.meta.seq_lens.iter().map(|len| (*len as usize).pow(2)).sum();
        let work = 4 * pairs * heads * self.attention.head_dim;
        for_each_piece(self.meta.seq_lens.len() * heads, work, |piece| {
            simd.enter(Head { batch, seq: piece / heads, head: piece % heads });
        });
    }
}

/// A matrix of which the columns from `first` on are read.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    /// `[steps, stride]`
    elements: &'a [f32],
    stride: usize,
    first: usize,
}

impl Table {
    /// Returns the table of a head from the bucket `first` on.
    fn of_head(&self, head: usize, head_dim: usize, first: usize) -> Matrix<'_> {
        let len = head_dim * self.stride;
        Matrix { elements: &self.elements[head * len..][..len], stride: self.stride, first }
    }
}

/// One head of one sequence.
struct Head<'a> {
    batch: &'a Batch<'a>,
    seq: usize,
    head: usize,
}

impl Head<'_> {
    /// Returns the elements of row `token` of q, k or v that belong to the head.
    fn row<'r>(&self, rows: &'r [f32], token: usize) -> &'r [f32] {
        let dim = self.batch.attention.head_dim;
        &rows[(token * self.batch.attention.num_heads + self.head) * dim..][..dim]
    }
}

impl<S: Simd> Task<S> for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let Batch { rows: [q, k, v], meta, attention, o } = self.batch;
        let tokens = meta.tokens_of(self.seq);
        let (len, dim) = (tokens.len(), attention.head_dim);
        if len == 0 {
            return;
        }
        let (columns, value_width) = (len.next_multiple_of(LANES), dim.next_multiple_of(LANES));
        let mut keys = Scratch::<f32>::zeroed(dim * columns);
        let mut values = Scratch::<f32>::zeroed(len * value_width);
        let (keys, values): (&mut [f32], &mut [f32]) = (&mut keys, &mut values);
        for (j, token) in tokens.clone().enumerate() {
            for (key, x) in keys.iter_mut().skip(j).step_by(columns).zip(self.row(k, token)) {
                *key = *x;
            }
            values[j * value_width..][..dim].copy_from_slice(self.row(v, token));
        }
        let keys = Matrix { elements: keys, stride: columns, first: 0 };
        let values = Matrix { elements: values, stride: value_width, first: 0 };

        let (first, count) = attention.range(len);
        let width = count.next_multiple_of(LANES);
        let width_of = |table: &Option<Table>| if table.is_some() { width } else { 0 };
        let mut of_keys = Scratch::<f32>::new(len * width_of(&attention.queries));
        let mut of_queries = Scratch::<f32>::new(QUERIES * width_of(&attention.keys));
        let (of_keys, of_queries): (&mut [f32], &mut [f32]) = (&mut of_keys, &mut of_queries);
        if let Some(table) = &attention.queries {
            let key = |j: usize| self.row(k, tokens.start + j);
            multiply(s, len, key, table.of_head(self.head, dim, first), of_keys);
        }
        let mut scores = Scratch::<f32>::new(QUERIES * columns);
        let mut sums = Scratch::<f32>::new(QUERIES * value_width);
        let (scores, sums): (&mut [f32], &mut [f32]) = (&mut scores, &mut sums);
        for start in (0..len).step_by(QUERIES) {
            let rows = QUERIES.min(len - start);
            let query = |r: usize| self.row(q, tokens.start + start + r);
            let scores = &mut scores[..rows * columns];
            multiply(s, rows, query, keys, scores);
            if let Some(table) = &attention.keys {
                let own = &mut of_queries[..rows * width];
                multiply(s, rows, query, table.of_head(self.head, dim, first), own);
                for (r, own) in own.chunks_exact(width).enumerate() {
                    let buckets = attention.of_query(start + r, len);
                    for (score, bucket) in scores[r * columns..].iter_mut().zip(buckets) {
                        *score += own[*bucket as usize - first];
                    }
                }
            }
            if attention.queries.is_some() {
                // The buckets of neighbouring queries are neighbours in the row of a key.
                for (j, of_key) in of_keys.chunks_exact(width).enumerate() {
                    for r in 0..rows {
                        let bucket = attention.of_query(start + r, len)[j] as usize;
                        scores[r * columns + j] += of_key[bucket - first];
                    }
                }
            }
            let mut totals = [0.0; QUERIES];
            for (total, row) in totals.iter_mut().zip(scores.chunks_exact_mut(columns)) {
                row[len..].fill(f32::NEG_INFINITY);
                *total = weigh(s, attention.scale, row);
            }
            let (weights, sums): (&[f32], _) = (scores, &mut sums[..rows * value_width]);
            multiply(s, rows, |r| &weights[r * columns..][..len], values, sums);
            for (r, (sums, total)) in sums.chunks_exact(value_width).zip(totals).enumerate() {
                let token = tokens.start + start + r;
                let at = (token * attention.num_heads + self.head) * dim;
                // SAFETY: pieces have different tokens or heads, so their parts of o do not
                // overlap.
                let out = unsafe { o.slice(at, dim) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum / total;
                }
            }
        }
    }
}

/// Turns products into `exp(score − max)`. Returns the sum of them.
#[inline(always)]
fn weigh<S: Simd>(s: S, scale: f32, row: &mut [f32]) -> f32 {
    let row = row.as_chunks_mut::<LANES>().0;
    let mut max = s.splat(f32::NEG_INFINITY);
    for lanes in row.iter() {
        max = s.max(s.load(lanes), max);
    }
    let (shift, scale) = (s.splat(-max_of(s, max)), s.splat(scale));
    let mut sum = s.splat(0.0);
    for lanes in row {
        let weight = exp(s, s.mul(s.add(s.load(lanes), shift), scale));
        sum = s.add(sum, weight);
        s.store(lanes, weight);
    }
    sum_of(s, sum)
}

/// Writes the products of `rows` rows with the columns of a matrix into `out`, `[rows, width]`. The
/// width is that of whole vectors.
#[inline(always)]
fn multiply<'a, S: Simd>(
    s: S,
    rows: usize,
    row: impl Fn(usize) -> &'a [f32],
    matrix: Matrix<'_>,
    out: &mut [f32],
) {
    let width = out.len() / rows;
    let mut start = 0;
    while start + QUERIES <= rows {
        let tile = std::array::from_fn(|r| row(start + r));
        let out = &mut out[start * width..][..QUERIES * width];
        multiply_tile::<S, QUERIES>(s, tile, matrix, width, out);
        start += QUERIES;
    }
    for r in start..rows {
        multiply_tile::<S, 1>(s, [row(r)], matrix, width, &mut out[r * width..][..width]);
    }
}

/// Writes the products of some rows. A row's sums do not depend on the other rows.
#[inline(always)]
fn multiply_tile<S: Simd, const ROWS: usize>(
    s: S,
    rows: [&[f32]; ROWS],
    matrix: Matrix<'_>,
    width: usize,
    out: &mut [f32],
) {
    for column in (0..width).step_by(LANES) {
        let mut sums = [s.splat(0.0); ROWS];
        for (step, lanes) in matrix.elements.chunks_exact(matrix.stride).enumerate() {
            let lanes = s.load(&lanes[matrix.first + column..].as_chunks().0[0]);
            for (sum, row) in sums.iter_mut().zip(&rows) {
                *sum = s.fma(s.splat(row[step]), lanes, *sum);
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            s.store(&mut out[r * width + column..].as_chunks_mut().0[0], sum);
        }
    }
}
