//! The work of a cube, read from the plan.

use cubecl::prelude::*;

use super::SpansLayout;
use crate::paged_attention::cube::join::sees;
use crate::paged_attention::cube::plan::{ITEM_WORDS, ITEMS_AT, SEEN_WORDS};

/// Neighbouring tokens of a sequence, and query heads that share their keys.
#[derive(CubeType)]
pub(super) struct Item {
    /// Index among the plan's items.
    pub(super) index: usize,
    pub(super) first_token: usize,
    pub(super) tokens: usize,
    /// The place of the sequence's block table in the plan.
    pub(super) table: usize,
    pub(super) first_span: usize,
    pub(super) num_spans: usize,
    pub(super) kv_head: usize,
    pub(super) first_head: usize,
    pub(super) heads: usize,
    /// The last position that any row sees.
    pub(super) last_position: usize,
    /// The first position that each row of the tile sees, and the last. The last is its own in
    /// causal attention, which alone has slopes here.
    pub(super) first_seen: Array<usize>,
    pub(super) last_seen: Array<usize>,
    /// The position of each row's token.
    pub(super) positions: Array<usize>,
}

#[cube]
impl Item {
    /// Reads item `index` of the plan, and selects this cube's heads of it.
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
        let last_token = first_token + tokens - 1;
        let last_position = plan[layout.seen_at + last_token * SEEN_WORDS + 1] as usize;
        let mut first_seen = Array::<usize>::new(rows);
        let mut last_seen = Array::<usize>::new(rows);
        let mut positions = Array::<usize>::new(rows);
        #[unroll]
        for r in 0..rows {
            let token = first_token + min(comptime!(r / layout.tile.heads).runtime(), tokens - 1);
            let seen = layout.seen_at + token * SEEN_WORDS;
            first_seen[r] = plan[seen] as usize;
            last_seen[r] = plan[seen + 1] as usize;
            positions[r] = plan[seen + 2] as usize;
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
            first_seen,
            last_seen,
            positions,
        }
    }

    /// Returns the block that holds key `key`, and the key's place in it.
    pub(super) fn place(&self, plan: &[u32], layout: &SpansLayout, key: usize) -> (usize, usize) {
        let block_size = layout.pages.block_size;
        (plan[self.table + key / block_size] as usize, key % block_size)
    }

    /// Returns whether the token of a row sees any key of the span that starts at `start`.
    pub(super) fn sees(
        &self,
        plan: &[u32],
        layout: &SpansLayout,
        row: usize,
        start: usize,
    ) -> bool {
        let token = self.first_token + min(row / comptime!(layout.tile.heads), self.tokens - 1);
        let seen = layout.seen_at + token * SEEN_WORDS;
        sees(plan[seen] as usize, plan[seen + 1] as usize, start)
    }
}
