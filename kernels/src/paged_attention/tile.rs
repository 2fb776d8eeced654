//! One tile of queries against all their keys, span by span.

use super::cpu::{Batch, Tile};
use super::span::{Span, Visible, spans};
use super::{scores, softmax, weighted_sum};
use crate::simd::{Element, Simd, Task, Tiles, pack_steps};

/// Rows of a register tile.
pub(super) const REGISTER_ROWS: usize = 4;

/// A tile, to be run on one thread.
pub(super) struct TileTask<'a, E: Element> {
    pub(super) batch: &'a Batch<'a, E>,
    pub(super) tile: &'a Tile,
}

/// The running softmax of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowState {
    /// The largest score so far.
    pub(super) max: f32,
    /// `Σ exp(score − max)`
    pub(super) sum: f32,
    /// What this span's new maximum scales the earlier spans by.
    pub(super) rescale: f32,
}

impl<E: Element> TileTask<'_, E> {
    /// Query heads of the tile's tokens, token by token.
    fn num_rows(&self) -> usize {
        self.tile.tokens.len() * self.batch.group()
    }

    /// Where row `r` starts in q and o, and its token.
    fn row_start(&self, r: usize) -> (usize, usize) {
        let (group, params) = (self.batch.group(), self.batch.params);
        let token = self.tile.tokens.start + r / group;
        let head = self.tile.kv_head * group + r % group;
        ((token * params.num_heads + head) * self.batch.layout.head_dim, token)
    }

    fn query(&self, r: usize) -> &[f32] {
        &self.batch.q[self.row_start(r).0..][..self.batch.layout.head_dim]
    }

    /// The positions that each row sees.
    fn visible(&self) -> Vec<Visible> {
        let window = self.batch.params.sliding_window;
        let positions = &self.batch.meta.positions;
        (0..self.num_rows())
            .map(|r| Visible::new(positions[self.row_start(r).1] as usize, window))
            .collect()
    }

    /// `o / sum`, without the padding of `value_dim`.
    fn write_out(&self, o: &[f32], state: &[RowState]) {
        let layout = self.batch.layout;
        for (r, (o, state)) in o.chunks_exact(layout.value_dim).zip(state).enumerate() {
            // SAFETY: tiles have different tokens or heads, so their rows of o are apart.
            let out = unsafe { self.batch.o.slice(self.row_start(r).0, layout.head_dim) };
            for (out, o) in out.iter_mut().zip(o) {
                // A weight of zero may turn −0 into +0 within a larger tile: make all zeros +0.
                *out = o / state.sum + 0.0;
            }
        }
    }
}

impl<S: Simd, E: Element> Task<S> for TileTask<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let (layout, rows) = (self.batch.layout, self.num_rows());
        let tiles = Tiles::new(rows, REGISTER_ROWS);
        let steps = layout.head_dim / E::INPUTS;
        let queries = pack_steps::<S, E>(s, tiles.clone(), |r| self.query(r), steps);
        let visible = self.visible();
        let mut state = vec![RowState { max: f32::NEG_INFINITY, sum: 0.0, rescale: 0.0 }; rows];
        let mut weights = vec![0.0; rows * Span::lanes(layout)];
        let mut o = vec![0.0; rows * layout.value_dim];
        let blocks = &self.batch.meta.block_tables[self.tile.seq];
        for span in spans(layout, blocks, &visible) {
            let head = span.head(self.batch.arenas, self.tile.kv_head);
            scores::fill(s, &head, tiles.clone(), &queries, &mut weights);
            for ((row, state), visible) in
                weights.chunks_exact_mut(Span::lanes(layout)).zip(&mut state).zip(&visible)
            {
                softmax::update(s, &span, *visible, self.batch.params, row, state);
            }
            weighted_sum::add(s, &head, tiles.clone(), &weights, &state, &mut o);
        }
        self.write_out(&o, &state);
    }
}
