//! The memory that the units of a cube share.

use cubecl::prelude::*;

use super::item::Item;
use super::{HIDDEN, SPAN, SpansLayout, UNITS_A_ROW};
use crate::cube::Vec4;
use crate::paged_attention::cube::plan::Tile;

/// Memory by row of the tile. A row is a query: one head of one token.
#[derive(CubeType)]
pub(super) struct TileMemory {
    pub(super) queries: Shared<[Vec4]>,
    /// One for each key of a span: first scores, then weights.
    pub(super) scores: Shared<[f32]>,
    /// For each key of a span, the place of its value and, where values have scales, its scale.
    pub(super) value_places: Shared<[u32]>,
    pub(super) value_scales: Shared<[f32]>,
    /// The largest score of a span and the sum of its weights, one for each unit of the row.
    pub(super) row_maxima: Shared<[f32]>,
    pub(super) row_totals: Shared<[f32]>,
    /// Sums of the values of a span, in parts.
    pub(super) partial: Shared<[Vec4]>,
    /// Sums over all spans so far.
    pub(super) sums: Shared<[Vec4]>,
    pub(super) maxima: Shared<[f32]>,
    pub(super) totals: Shared<[f32]>,
}

#[cube]
impl TileMemory {
    pub(super) fn new(#[comptime] tile: Tile) -> TileMemory {
        let (rows, vectors) = comptime!((tile.rows(), tile.head_dim / 4));
        let of_values = comptime!(rows * tile.value_head_dim / 4);
        TileMemory {
            queries: Shared::<[Vec4]>::new_slice(comptime!(rows * vectors)),
            scores: Shared::<[f32]>::new_slice(comptime!(rows * SPAN)),
            value_places: Shared::<[u32]>::new_slice(SPAN),
            value_scales: Shared::<[f32]>::new_slice(SPAN),
            row_maxima: Shared::<[f32]>::new_slice(comptime!(rows * UNITS_A_ROW)),
            row_totals: Shared::<[f32]>::new_slice(comptime!(rows * UNITS_A_ROW)),
            partial: Shared::<[Vec4]>::new_slice(comptime!(tile.value_parts() * of_values)),
            sums: Shared::<[Vec4]>::new_slice(of_values),
            maxima: Shared::<[f32]>::new_slice(rows),
            totals: Shared::<[f32]>::new_slice(rows),
        }
    }

    /// Loads the queries, before the first span. Missing rows of a tile repeat its last.
    pub(super) fn begin(&mut self, q: &[Vec4], layout: &SpansLayout, item: &Item) {
        let (rows, vectors) = comptime!((layout.tile.rows(), layout.tile.head_dim / 4));
        let unit = UNIT_POS as usize;
        let mut at = unit;
        while at < comptime!(rows * vectors) {
            let row = at / vectors;
            let token = item.first_token + min(row / comptime!(layout.tile.heads), item.tokens - 1);
            let head = item.first_head + min(row % comptime!(layout.tile.heads), item.heads - 1);
            self.queries[at] = q[token * layout.q_stride + head * vectors + at % vectors];
            at += SPAN;
        }
        let mut at = unit;
        while at < comptime!(rows * layout.tile.value_head_dim / 4) {
            self.sums[at] = Vec4::new(0.0f32);
            at += SPAN;
        }
        if unit < rows {
            self.maxima[unit] = HIDDEN.runtime();
            self.totals[unit] = 0.0f32.runtime();
        }
    }

    /// Returns the largest score of a row, from those of its units.
    pub(super) fn maximum(&self, row: usize) -> f32 {
        let mut largest = self.row_maxima[row * UNITS_A_ROW];
        for lane in 1..UNITS_A_ROW {
            largest = max(largest, self.row_maxima[row * UNITS_A_ROW + lane]);
        }
        largest
    }

    /// Returns the sum of a row's weights, from those of its units in order.
    pub(super) fn total(&self, row: usize) -> f32 {
        let mut total = self.row_totals[row * UNITS_A_ROW];
        for lane in 1..UNITS_A_ROW {
            total += self.row_totals[row * UNITS_A_ROW + lane];
        }
        total
    }
}
