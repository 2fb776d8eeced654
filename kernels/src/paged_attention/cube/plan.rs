//! Which cube does what: decided on the host, from lengths alone.

use super::SPAN;
use super::spans::{UNITS_A_ROW, VALUE_PARTS};
use crate::cube::WordFormat;
use crate::kv_cache::cube::CubeKv;
use crate::paged_attention::{AttentionMetadata, AttentionParams};

/// Queries of a tile at most.
const ROWS_MAX: usize = 8;

/// Bytes at most of what spans come to before they are joined.
const RECORDS_BYTES_MAX: usize = 64 << 20;

/// Words that describe an item to its cubes.
pub(super) const ITEM_WORDS: usize = 5;

/// Words that describe a token to the cubes that join its spans.
pub(super) const JOIN_WORDS: usize = 4;

/// What a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Query heads of a tile, all of one key-value head.
    pub(super) heads: usize,
    /// Tokens of a tile, neighbours in their sequence.
    pub(super) tokens: usize,
    /// Query heads of a key-value head.
    pub(super) group: usize,
    /// Elements of a head.
    pub(super) head_dim: usize,
    /// Of keys and values.
    pub(super) format: WordFormat,
    /// Whether a span is a cube's whole work.
    pub(super) is_split: bool,
    /// Whether scores have a soft cap.
    pub(super) has_soft_cap: bool,
}

impl Tile {
    /// Queries.
    pub(super) const fn rows(self) -> usize {
        self.heads * self.tokens
    }

    /// Tiles that the query heads of a key-value head make.
    pub(super) const fn per_group(self) -> usize {
        self.group.div_ceil(self.heads)
    }

    /// Bytes of shared memory: queries, results and their parts, scores and what they come to.
    const fn shared_bytes(self) -> usize {
        let floats_of_row = (2 + VALUE_PARTS) * self.head_dim + SPAN + 2 * UNITS_A_ROW + 2;
        self.rows() * floats_of_row * size_of::<f32>()
    }
}

/// A batch's work.
pub(super) struct Plan {
    pub(super) tile: Tile,
    /// Tiles of tokens or, where it is split, their spans.
    pub(super) items: usize,
    /// All of the below, one after the other:
    /// - by item its first token, its number of tokens, where its block table starts, its first span
    ///   and its number of spans;
    /// - the block tables;
    /// - by token its position;
    /// - where it is split, by token its tile's first item, its place in the tile, and its tile's
    ///   first span and number of spans.
    pub(super) words: Vec<u32>,
    pub(super) tables_at: usize,
    pub(super) positions_at: usize,
    pub(super) joins_at: usize,
}

impl Plan {
    pub(super) fn new(
        kv: &CubeKv,
        meta: &AttentionMetadata,
        params: &AttentionParams,
        shared_bytes: usize,
        cubes_enough: usize,
    ) -> Self {
        let mut tile = tile(kv, meta, params, shared_bytes);
        let tiles = tiles(meta, params, tile.tokens);
        let cubes = tiles.len() * kv.shape.num_kv_heads * tile.per_group();
        let spans: usize = tiles.iter().map(|tile| tile.spans).sum();
        let record_bytes = (tile.head_dim + 4) * size_of::<f32>();
        let records = spans * tile.tokens * params.num_heads;
        tile.is_split = spans > tiles.len()
            && cubes < cubes_enough
            && records * record_bytes <= RECORDS_BYTES_MAX;

        let (mut words, mut joins) = (Vec::new(), Vec::new());
        let mut table_starts = Vec::with_capacity(meta.num_seqs());
        let mut tables = Vec::new();
        for (len, table) in meta.seq_lens.iter().zip(&meta.block_tables) {
            table_starts.push(tables.len() as u32);
            tables.extend_from_slice(&table[..(*len as usize).div_ceil(kv.shape.block_size)]);
        }
        for of in &tiles {
            let table = table_starts[of.seq];
            let (token, tokens) = (of.first_token as u32, of.tokens as u32);
            let (span, spans) = (of.first_span as u32, of.spans as u32);
            let first_item = (words.len() / ITEM_WORDS) as u32;
            if tile.is_split {
                joins.extend((0..tokens).flat_map(|t| [first_item, t, span, spans]));
                words.extend((span..span + spans).flat_map(|s| [token, tokens, table, s, 1]));
            } else {
                words.extend([token, tokens, table, span, spans]);
            }
        }
        let items = words.len() / ITEM_WORDS;
        let tables_at = words.len();
        words.extend(tables);
        let positions_at = words.len();
        words.extend_from_slice(&meta.positions);
        let joins_at = words.len();
        words.extend(joins);
        Self { tile, items, words, tables_at, positions_at, joins_at }
    }
}

/// Neighbouring tokens of a sequence, and the spans that any of them sees.
struct TokenTile {
    seq: usize,
    first_token: usize,
    tokens: usize,
    first_span: usize,
    spans: usize,
}

/// All tokens in tiles of at most `tokens`, in order.
fn tiles(meta: &AttentionMetadata, params: &AttentionParams, tokens: usize) -> Vec<TokenTile> {
    let mut tiles = Vec::new();
    for seq in 0..meta.num_seqs() {
        let range = meta.tokens_of(seq);
        for first_token in range.clone().step_by(tokens) {
            let count = tokens.min(range.end - first_token);
            let first = meta.positions[first_token] as usize;
            let last = meta.positions[first_token + count - 1] as usize;
            let window = params.sliding_window.map(|window| window as usize);
            let first_seen = window.map_or(0, |window| (first + 1).saturating_sub(window));
            let first_span = first_seen / SPAN;
            let spans = last / SPAN + 1 - first_span;
            tiles.push(TokenTile { seq, first_token, tokens: count, first_span, spans });
        }
    }
    tiles
}

/// The largest tile that the batch and the device's shared memory have room for.
fn tile(
    kv: &CubeKv,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    shared_bytes: usize,
) -> Tile {
    let group = params.num_heads / kv.shape.num_kv_heads;
    let longest = (0..meta.num_seqs()).map(|seq| meta.tokens_of(seq).len()).max().unwrap_or(1);
    let of_rows = |rows: usize| {
        let heads = group.div_ceil(group.div_ceil(rows));
        Tile {
            heads,
            tokens: (rows / heads).min(longest.max(1)),
            group,
            head_dim: kv.shape.head_dim,
            format: kv.format,
            is_split: false,
            has_soft_cap: params.soft_cap.is_some(),
        }
    };
    let mut rows = ROWS_MAX;
    while rows > 1 && of_rows(rows).shared_bytes() > shared_bytes {
        rows /= 2;
    }
    of_rows(rows)
}
