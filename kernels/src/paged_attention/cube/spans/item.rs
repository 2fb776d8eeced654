//! What a cube works on, as the plan says.

use cubecl::prelude::*;

use super::SpansLayout;
use crate::paged_attention::cube::join::sees;
use crate::paged_attention::cube::plan::{ITEM_WORDS, ITEMS_AT};

/// Neighbouring tokens of a sequence, and query heads that share their keys.
#[derive(CubeType)]
pub(super) struct Item {
    /// Which of the plan's items it is.
    pub(super) index: usize,
    pub(super) first_token: usize,
    pub(super) tokens: usize,
    /// Where the plan has the sequence's block table.
    pub(super) table: usize,
    pub(super) first_span: usize,
    pub(super) num_spans: usize,
    pub(super) kv_head: usize,
    pub(super) first_head: usize,
    pub(super) heads: usize,
    /// The last token's.
    pub(super) last_position: usize,
    /// By row of the tile.
    pub(super) positions: Array<usize>,
}

#[cube]
impl Item {
    /// Item `index` of the plan, and this cube's heads of it.
    pub(super) fn read(plan: &[u32], layout: &SpansLayout, index: usize) -> Item {
        let rows = comptime!(layout.tile.rows());
        let of = ITEMS_AT + index * ITEM_WORDS;
        let first_token = plan[of] as usize;
        let tokens = plan[of + 1] as usize;
        let table = layout.tables_at + plan[of + 2] as usize;
        let first_span = plan[of + 3] as usize;
        let num_spans = plan[of + 4] as usize;
        let kv_head = CUBE_POS_X as usize / comptime!(layout.tile.per_group());
        let in_group =
            CUBE_POS_X as usize % comptime!(layout.tile.per_group()) * comptime!(layout.tile.heads);
        let first_head = kv_head * comptime!(layout.tile.group) + in_group;
        let heads =
            min(comptime!(layout.tile.heads).runtime(), comptime!(layout.tile.group) - in_group);
        let last_position = plan[layout.positions_at + first_token + tokens - 1] as usize;
        let mut positions = Array::<usize>::new(rows);
        #[unroll]
        for r in 0..rows {
            let token = first_token + min(comptime!(r / layout.tile.heads).runtime(), tokens - 1);
            positions[r] = plan[layout.positions_at + token] as usize;
        }
        Item {
            index,
            first_token,
            tokens,
            table,
            first_span,
            num_spans,
            kv_head,
            first_head,
            heads,
            last_position,
            positions,
        }
    }

    /// Where the cache has this head's places of the block that key `key` is in.
    pub(super) fn block(&self, plan: &[u32], layout: &SpansLayout, key: usize) -> usize {
        let block = plan[self.table + key / layout.block_size] as usize;
        (block * layout.num_kv_heads + self.kv_head) * layout.block_size
    }

    /// Whether the token of a row sees any key of the span that starts at `start`.
    pub(super) fn sees(
        &self,
        plan: &[u32],
        layout: &SpansLayout,
        row: usize,
        start: usize,
    ) -> bool {
        let token = self.first_token + min(row / comptime!(layout.tile.heads), self.tokens - 1);
        sees(plan[layout.positions_at + token] as usize, start, layout.window)
    }
}
