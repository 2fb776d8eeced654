//! The cut of a batch into tiles of queries, and of tiles into parts along the context. No result
//! depends on the cut. Every thread sums a span of keys in the same way, and spans are joined in
//! their order.

use std::cmp::Reverse;
use std::ops::Range;

use super::span::{Visible, spans_of};
use super::{AttentionMetadata, AttentionParams};
use crate::kv_cache::KvLayout;

/// Largest number of rows of a tile, unless the group of one token has more heads. A row is one
/// query head of one token. 24 rows are two register tiles of twelve. Beside their queries, L1 has
/// room for keys.
const TILE_ROWS: usize = 24;

/// Number of parts of a step that is long enough. So as many cores find work.
const PARTS: usize = 128;

/// Least cost of a part: a span for the rows of a small group.
const PART_COST_MIN: usize = 2048;

/// The cost of reading a key. The unit is the cost of its product with one row.
const KEY_COST: usize = 4;

/// Neighbouring query tokens of one sequence, for the query heads of one key-value head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) seq: usize,
    pub(super) kv_head: usize,
    pub(super) tokens: Range<usize>,
    /// Query heads of the key-value head.
    pub(super) group: usize,
    /// Positions that some row sees.
    pub(super) seen: Range<usize>,
    /// Spans that some row sees.
    pub(super) spans: Range<usize>,
    /// The place of the sums of its spans, if several parts compute them.
    pub(super) records: Option<usize>,
}

/// Some spans of a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) tile: usize,
    pub(super) spans: Range<usize>,
    cost: usize,
}

/// The cut of a batch.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) tiles: Vec<Tile>,
    /// All parts, the costly ones first.
    pub(super) parts: Vec<Part>,
    /// Number of elements of all records.
    pub(super) records_len: usize,
}

impl Tile {
    /// Returns the number of rows: the query heads of its tokens, token by token.
    pub(super) fn num_rows(&self) -> usize {
        self.tokens.len() * self.group
    }

    /// Returns the number of elements of a span's sums.
    pub(super) fn record_len(&self, layout: &KvLayout) -> usize {
        self.num_rows() * (layout.value_dim + 2)
    }

    fn cost(&self) -> usize {
        (self.num_rows() + KEY_COST) * self.seen.len()
    }
}

impl Plan {
    /// Replaces the whole content with the plan of a batch.
    pub(super) fn cut(
        &mut self,
        layout: &KvLayout,
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) {
        let Self { tiles, parts, records_len } = self;
        lay_tiles(tiles, layout, meta, params);
        parts.clear();
        *records_len = 0;
        let total: usize = tiles.iter().map(Tile::cost).sum();
        let cost_max = (total / PARTS).max(PART_COST_MIN);
        for (index, tile) in tiles.iter_mut().enumerate() {
            let spans = tile.spans.len();
            let count = (tile.cost() / cost_max).clamp(1, spans);
            if count > 1 {
                tile.records = Some(*records_len);
                *records_len += spans * tile.record_len(layout);
            }
            parts.extend((0..count).map(|i| {
                let cut = |i: usize| tile.spans.start + i * spans / count;
                Part { tile: index, spans: cut(i)..cut(i + 1), cost: tile.cost() / count }
            }));
        }
        // Equal costs are in order of the tiles. A stable sort would allocate memory.
        parts.sort_unstable_by_key(|part| (Reverse(part.cost), part.tile, part.spans.start));
    }
}

fn lay_tiles(
    tiles: &mut Vec<Tile>,
    layout: &KvLayout,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) {
    let group = params.num_heads / layout.num_kv_heads;
    let tokens_max = (TILE_ROWS / group).max(1);
    tiles.clear();
    for seq in 0..meta.num_seqs() {
        let all = meta.tokens_of(seq);
        for start in all.clone().step_by(tokens_max) {
            let tokens = start..all.end.min(start + tokens_max);
            // A later token sees no key before those that an earlier one sees. Its last is no
            // earlier either.
            let sees = |token: usize| Visible::new(meta, seq, token, params.mask);
            let seen = sees(tokens.start).first..sees(tokens.end - 1).last + 1;
            let spans = spans_of(layout, &seen);
            tiles.extend((0..layout.num_kv_heads).map(|kv_head| Tile {
                seq,
                kv_head,
                tokens: tokens.clone(),
                group,
                seen: seen.clone(),
                spans: spans.clone(),
                records: None,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::SPAN_TOKENS;
    use super::*;
    use crate::{AttentionMask, KvCacheShape};

    /// Returns the plan of a batch of (length, query tokens), with 8 query heads over 2 key-value
    /// heads.
    fn plan(seqs: &[(u32, u32)], mask: AttentionMask) -> Plan {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 4096,
            block_size: 16,
            num_kv_heads: 2,
            head_dim: 64,
            value_head_dim: 64,
            values_in_keys: false,
            state_len: 0,
        };
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for (len, queries) in seqs {
            meta.positions.extend(len - queries..*len);
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push(*len);
        }
        let params = AttentionParams { mask, ..AttentionParams::new(8, 1.0) };
        let mut plan = Plan::default();
        plan.cut(&KvLayout::new(&shape), &meta, &params);
        plan
    }

    #[test]
    fn every_span_that_a_tile_sees_is_in_one_part() {
        for (seqs, mask) in [
            (vec![(9000, 1), (300, 1), (1, 1), (700, 650)], AttentionMask::Full),
            (vec![(9000, 1), (5000, 100)], AttentionMask::Sliding(3000)),
            (vec![(9000, 1), (5000, 1500), (4096, 1)], AttentionMask::Chunked(4096)),
            (vec![(40, 1); 70], AttentionMask::Full),
            (vec![], AttentionMask::Full),
        ] {
            let plan = plan(&seqs, mask);
            for (index, tile) in plan.tiles.iter().enumerate() {
                let mut spans: Vec<usize> = plan
                    .parts
                    .iter()
                    .filter(|part| part.tile == index)
                    .flat_map(|part| part.spans.clone())
                    .collect();
                spans.sort_unstable();
                assert!(spans.iter().copied().eq(tile.spans.clone()), "{tile:?}");
            }
            let queries: u32 = seqs.iter().map(|(_, queries)| queries).sum();
            let rows: usize = plan.tiles.iter().map(Tile::num_rows).sum();
            assert_eq!(rows, queries as usize * 8);
        }
    }

    #[test]
    fn keys_that_no_row_sees_are_not_read() {
        let seen = |len: u32, queries: u32, mask| {
            let plan = plan(&[(len, queries)], mask);
            let [first, .., last] = &plan.tiles[..] else { unreachable!("two key-value heads") };
            assert_eq!(first.spans.start, first.seen.start / SPAN_TOKENS);
            (first.seen.clone(), last.seen.clone())
        };
        assert_eq!(seen(9000, 1, AttentionMask::Sliding(512)), (8488..9000, 8488..9000));
        assert_eq!(seen(9000, 1, AttentionMask::Chunked(512)), (8704..9000, 8704..9000));
        assert_eq!(seen(8705, 1, AttentionMask::Chunked(512)), (8704..8705, 8704..8705));
        // The last token of a chunk and the first of the next share a tile.
        assert_eq!(seen(1026, 3, AttentionMask::Chunked(512)), (512..1026, 512..1026));
        // Six tokens of one chunk fill a tile, and the next chunk's have a tile of their own.
        assert_eq!(seen(1026, 8, AttentionMask::Chunked(512)), (512..1024, 1024..1026));
    }

    #[test]
    fn records_of_tiles_lie_side_by_side() {
        let plan = plan(&[(30_000, 1), (2000, 1), (8000, 9)], AttentionMask::Full);
        let split: Vec<&Tile> = plan.tiles.iter().filter(|tile| tile.records.is_some()).collect();
        assert!(!split.is_empty());
        let mut end = 0;
        for tile in split {
            assert_eq!(tile.records, Some(end));
            end += tile.spans.len() * tile.num_rows() * (64 + 2);
        }
        assert_eq!(end, plan.records_len);
    }

    #[test]
    fn one_long_request_is_cut_and_many_equal_ones_are_not() {
        let long = plan(&[(32_768, 1)], AttentionMask::Full);
        assert_eq!((long.tiles.len(), long.parts.len()), (2, PARTS));
        let many = plan(&[(1024, 1); 64], AttentionMask::Full);
        assert_eq!((many.tiles.len(), many.parts.len(), many.records_len), (128, 128, 0));
        let mixed = plan(&[(16, 1), (32_768, 1), (256, 1)], AttentionMask::Full);
        let costs: Vec<usize> = mixed.parts.iter().map(|part| part.cost).collect();
        assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
    }
}
