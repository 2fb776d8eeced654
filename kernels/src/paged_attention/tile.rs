//! One part of a tile of queries, span by span, and the join of the parts of a tile.

use std::cell::Cell;

use super::cpu::Batch;
use super::plan::{Part, Tile};
use super::softmax::{Softmax, join, weigh};
use super::span::{Span, Visible};
use super::{scores, weighted_key_sum, weighted_sum};
use crate::kv_cache::KvElement;
use crate::simd::{Simd, Task, Tiles};

/// The memory of a thread for a part, kept for the next part.
#[derive(Default)]
struct Scratch {
    /// `[register tile][vector of lanes][row]`
    weights: Vec<f32>,
    /// The sums of the current span, and of all spans so far: one record each.
    records: [Vec<f32>; 2],
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// The sums over some keys: `Σ weight · v` a row, `[rows, value_dim]`, and the rows' softmax.
struct Record<'a> {
    sums: &'a mut [f32],
    softmax: &'a mut [[f32; 2]],
}

impl<'a> Record<'a> {
    fn new(data: &'a mut [f32], rows: usize) -> Self {
        let (sums, softmax) = data.split_at_mut(data.len() - 2 * rows);
        Self { sums, softmax: softmax.as_chunks_mut().0 }
    }

    /// Sets the sums to those over no key.
    fn clear(&mut self) {
        self.sums.fill(0.0);
        self.softmax.fill([Softmax::EMPTY.max, Softmax::EMPTY.sum]);
    }

    /// Joins the sums of the next span.
    #[inline(always)]
    fn join<S: Simd>(&mut self, s: S, span: &Record<'_>) {
        let dim = self.sums.len() / self.softmax.len();
        let rows = self.sums.chunks_exact_mut(dim).zip(self.softmax.iter_mut());
        let spans = span.sums.chunks_exact(dim).zip(span.softmax.iter());
        for ((o, total), (sums, [max, sum])) in rows.zip(spans) {
            let mut softmax = Softmax { max: total[0], sum: total[1] };
            join(s, &mut softmax, o, Softmax { max: *max, sum: *sum }, sums);
            *total = [softmax.max, softmax.sum];
        }
    }
}

/// Returns the most rows of a register tile. Each has two vectors, or one where the registers hold
/// few.
pub(super) const fn rows_max<S: Simd>() -> usize {
    if S::TILE_VECTORS < 24 { S::TILE_VECTORS } else { S::TILE_VECTORS / 2 }
}

/// The task of computing a part on one thread.
pub(super) struct PartTask<'a, E: KvElement> {
    pub(super) batch: &'a Batch<'a, E>,
    pub(super) part: &'a Part,
}

/// The task of joining a tile whose parts are done, on one thread.
pub(super) struct JoinTask<'a, E: KvElement> {
    pub(super) batch: &'a Batch<'a, E>,
    pub(super) tile: &'a Tile,
    /// The place where its records begin.
    pub(super) records: usize,
}

impl<E: KvElement> Batch<'_, E> {
    /// Returns the token and the query head of row `r` of a tile.
    fn token_and_head(&self, tile: &Tile, r: usize) -> (usize, usize) {
        (tile.tokens.start + r / tile.group, tile.kv_head * tile.group + r % tile.group)
    }

    /// Returns the place of row `r` of a tile among all heads of q, and of o.
    fn place(&self, tile: &Tile, r: usize) -> usize {
        let (token, head) = self.token_and_head(tile, r);
        token * self.params.num_heads + head
    }

    fn visible(&self, tile: &Tile, token: usize) -> Visible {
        Visible::new(self.meta, tile.seq, token, self.params.mask)
    }

    /// Writes `sums / sum`, without the padding of `value_dim`. All spans were joined, so now a
    /// sink joins.
    #[inline(always)]
    fn write_out(&self, tile: &Tile, total: &Record<'_>) {
        let len = self.layout.value_head_dim;
        let rows = total.sums.chunks_exact(self.layout.value_dim).zip(total.softmax.iter());
        for (r, (sums, [max, sum])) in rows.enumerate() {
            let head = self.token_and_head(tile, r).1;
            let (factor, sum) = match &self.params.sinks {
                Some(sinks) => Softmax { max: *max, sum: *sum }.with_sink(sinks.cpu()[head]),
                None => (1.0, *sum),
            };
            // SAFETY: tiles have different tokens or heads, so their rows of o do not overlap.
            let out = unsafe { self.o.slice(self.place(tile, r) * len, len) };
            for (out, x) in out.iter_mut().zip(sums) {
                // Within a larger tile, a weight of zero may turn −0 into +0. This makes all zeros
                // +0.
                *out = x * factor / sum + 0.0;
            }
        }
    }
}

impl<S: Simd, E: KvElement> Task<S> for PartTask<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let (batch, layout) = (self.batch, self.batch.layout);
        let tile = &batch.plan.tiles[self.part.tile];
        let (rows, len) = (tile.num_rows(), tile.record_len(layout));
        let lanes = Span::lanes(layout);
        let mut scratch = SCRATCH.take();
        scratch.weights.resize(rows * lanes, 0.0);
        scratch.records.iter_mut().for_each(|record| record.resize(len, 0.0));
        let [record, total] = &mut scratch.records;
        let mut total = Record::new(total, rows);
        total.clear();

        let tiles = Tiles::new(rows, rows_max::<S>());
        let head_dim = layout.head_dim;
        let query = |r: usize| &batch.q[batch.place(tile, r) * head_dim..][..head_dim];
        let steps = head_dim / E::INPUTS;
        let queries = scores::pack::<S, E>(s, rows, tiles.clone(), query, steps);
        let blocks = &batch.meta.block_tables[tile.seq];
        for index in self.part.spans.clone() {
            let span = Span::new(layout, blocks, index, &tile.seen);
            let head = span.head(batch.arenas, tile.kv_head);
            let record = Record::new(
                match tile.records {
                    // SAFETY: each span of each tile has a place of its own and belongs to one
                    // part.
                    Some(at) => unsafe {
                        batch.records.slice(at + (index - tile.spans.start) * len, len)
                    },
                    None => record,
                },
                rows,
            );
            scores::fill(s, &head, tiles.clone(), &queries, &mut scratch.weights);
            for rows in tiles.clone() {
                let scores = &mut scratch.weights[rows.start * lanes..rows.end * lanes];
                let scores = scores.as_chunks_mut().0;
                for r in rows.clone() {
                    let (token, of) = batch.token_and_head(tile, r);
                    let (visible, scoring) = (batch.visible(tile, token), batch.params.scoring(of));
                    let at = (r - rows.start, rows.len());
                    let Softmax { max, sum } = weigh(s, &head, visible, scoring, at, scores);
                    record.softmax[r] = [max, sum];
                }
            }
            match layout.values_in_keys {
                true => {
                    weighted_key_sum::fill(s, &head, tiles.clone(), &scratch.weights, record.sums)
                }
                false => {
                    weighted_sum::fill(s, &head, tiles.clone(), &scratch.weights, record.sums);
                }
            }
            if tile.records.is_none() {
                total.join(s, &record);
            }
        }
        if tile.records.is_none() {
            batch.write_out(tile, &total);
        }
        SCRATCH.set(scratch);
    }
}

impl<S: Simd, E: KvElement> Task<S> for JoinTask<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let (tile, rows) = (self.tile, self.tile.num_rows());
        let len = tile.record_len(self.batch.layout);
        let mut scratch = SCRATCH.take();
        let total = &mut scratch.records[1];
        total.resize(len, 0.0);
        let mut total = Record::new(total, rows);
        total.clear();
        for span in 0..tile.spans.len() {
            // SAFETY: the parts are done, so no other thread has the records of this tile.
            let record = unsafe { self.batch.records.slice(self.records + span * len, len) };
            total.join(s, &Record::new(record, rows));
        }
        self.batch.write_out(tile, &total);
        SCRATCH.set(scratch);
    }
}
