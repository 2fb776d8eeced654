//! The work of each cube. The host decides it from lengths alone.

use super::SPAN;
use super::spans::UNITS_A_ROW;
use crate::KvCacheShape;
use crate::cube::WordFormat;
use crate::kv_cache::cube::{CubeKv, KvForm};
use crate::paged_attention::{AttentionMask, AttentionMetadata, AttentionParams};

/// Most queries of a tile.
const ROWS_MAX: usize = 8;

/// Most parts in which the values of a span are summed. Each takes shared memory.
const VALUE_PARTS_MAX: usize = 4;

/// Most shared memory of a tile. With more, few cubes would fit a processor of the device.
const SHARED_BYTES_MAX: usize = 48 << 10;

/// Most bytes of the sums of spans before they are joined.
const RECORDS_BYTES_MAX: usize = 64 << 20;

/// The place where a plan's items begin: behind their number.
pub(super) const ITEMS_AT: usize = 1;

/// Words that describe an item to its cubes.
pub(super) const ITEM_WORDS: usize = 5;

/// Words that describe a token's keys: the first position that it sees, the last, and its own.
pub(super) const SEEN_WORDS: usize = 3;

/// Words that describe a token to the cubes that join its spans.
pub(super) const JOIN_WORDS: usize = 4;

/// The constants that a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    /// Query heads of a tile, all of one key-value head.
    pub(super) heads: usize,
    /// Tokens of a tile, neighbours in their sequence.
    pub(super) tokens: usize,
    /// Query heads of a key-value head.
    pub(super) group: usize,
    /// Elements of a query and of a key.
    pub(super) head_dim: usize,
    /// Elements of a value and of a result.
    pub(super) value_head_dim: usize,
    /// Format of keys and values.
    pub(super) format: WordFormat,
    /// Whether each cube has one span only.
    pub(super) is_split: bool,
    /// Whether scores have a soft cap.
    pub(super) has_soft_cap: bool,
}

impl Tile {
    /// Returns the number of queries.
    pub(super) const fn rows(self) -> usize {
        self.heads * self.tokens
    }

    /// Returns the bytes of a record: a head's sums and a vector more.
    pub(super) const fn record_bytes(self) -> usize {
        (self.value_head_dim + 4) * size_of::<f32>()
    }

    /// Returns the tiles for the query heads of one key-value head.
    pub(super) const fn per_group(self) -> usize {
        self.group.div_ceil(self.heads)
    }

    /// Returns the parts in which the values of a span are summed, so that each chunk of them
    /// keeps several units busy. It depends on the layer alone.
    pub(super) const fn value_parts(self) -> usize {
        let chunks = self.value_head_dim / self.format.per_chunk();
        let mut parts = VALUE_PARTS_MAX;
        while parts > 1 && parts * chunks > SPAN {
            parts /= 2;
        }
        parts
    }

    /// Returns the chunks of keys or values that a unit loads before it uses the first, a divisor
    /// of the keys of a part. More rows have more to compute between two loads.
    pub(super) const fn loads(self) -> usize {
        match self.rows() {
            0..=2 => 8,
            3..=4 => 4,
            _ => 2,
        }
    }

    /// Returns whether keys and values have scales.
    pub(super) const fn has_scales(self) -> bool {
        matches!(self.format, WordFormat::Int8)
    }

    /// Returns bytes of shared memory: queries, results and their parts, scores, maxima and totals,
    /// and of all rows together the places and scales of values.
    const fn shared_bytes(self) -> usize {
        let of_values = (1 + self.value_parts()) * self.value_head_dim;
        let floats_of_row = self.head_dim + of_values + SPAN + 2 * UNITS_A_ROW + 2;
        (self.rows() * floats_of_row + 2 * SPAN) * size_of::<f32>()
    }
}

/// Most vectors of a value: the units of a cube that joins spans.
const VALUE_VECTORS_MAX: usize = 256;

/// Returns whether the kernels have room for heads of this form, where a cube may have so many
/// bytes of shared memory.
pub(crate) fn takes_heads(form: KvForm, shared_bytes: usize) -> bool {
    let one = Tile {
        heads: 1,
        tokens: 1,
        group: 1,
        head_dim: form.head_dim,
        value_head_dim: form.value_head_dim,
        format: form.format,
        is_split: false,
        has_soft_cap: false,
    };
    one.shared_bytes() <= shared_bytes && form.value_head_dim / 4 <= VALUE_VECTORS_MAX
}

/// The inputs of a plan beside the batch: the layer and its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlanOf {
    shape: KvCacheShape,
    format: WordFormat,
    num_heads: usize,
    mask: AttentionMask,
    has_soft_cap: bool,
    /// The group of layers, which has block tables of its own.
    group: usize,
    /// Bytes of shared memory that a cube may have.
    shared_bytes: usize,
    /// Number of cubes with which spans need none of their own.
    cubes_enough: usize,
}

/// The parameters of a launch. Everything else is in the plan's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanForm {
    pub(super) tile: Tile,
    /// Cubes that look for an item: the number of items, or more.
    pub(super) items: usize,
    pub(super) seen_at: usize,
    pub(super) joins_at: usize,
    pub(super) tables_at: usize,
    /// Number of all words.
    len: usize,
}

/// A batch's work.
pub(crate) struct Plan {
    pub(crate) form: PlanForm,
    /// All of these, one after the other:
    /// - the number of items, which are tiles of tokens or, in a split plan, their spans;
    /// - for each item its first token, its number of tokens, the start of its block table, its
    ///   first span and its number of spans;
    /// - for each token the first position that it sees, and the last;
    /// - in a split plan, for each token its tile's first item, its place in the tile, and its
    ///   tile's first span and number of spans. A token that is not left has no spans;
    /// - the block tables.
    pub(crate) words: Vec<u32>,
}

impl PlanOf {
    pub(super) fn new(
        kv: &CubeKv,
        params: &AttentionParams,
        group: usize,
        shared_bytes: usize,
        cubes_enough: usize,
    ) -> Self {
        Self {
            shape: kv.shape,
            format: kv.format,
            num_heads: params.num_heads,
            mask: params.mask,
            has_soft_cap: params.soft_cap.is_some(),
            group,
            shared_bytes,
            cubes_enough,
        }
    }

    /// Returns the group of layers.
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Asserts that slots lie in the cache.
    pub(crate) fn check_slots(&self, slots: &[u32]) {
        self.shape.check_slots(slots);
    }

    /// Returns the plan of a batch. With `left`, it covers only that many first tokens of each
    /// sequence. A `roomy` plan has room for more items and longer tables. A batch that has grown a
    /// little then has the same form.
    pub(crate) fn plan(
        &self,
        meta: &AttentionMetadata,
        left: Option<&[usize]>,
        roomy: bool,
    ) -> Plan {
        let Self { shape, mask, .. } = *self;
        let mut tile = self.tile(meta);
        let tiles = tiles(meta, left, mask, tile.tokens);
        let cubes = tiles.len() * shape.num_kv_heads * tile.per_group();
        let spans: usize = tiles.iter().map(|tile| tile.spans).sum();
        let records = spans * tile.tokens * self.num_heads;
        tile.is_split = spans > tiles.len()
            && cubes < self.cubes_enough
            && records * tile.record_bytes() <= RECORDS_BYTES_MAX;

        let room = |count: usize| if roomy { count.next_power_of_two() } else { count };
        let count = if tile.is_split { spans } else { tiles.len() };
        let items = room(count);
        let seen_at = ITEMS_AT + items * ITEM_WORDS;
        let joins_at = seen_at + meta.num_tokens() * SEEN_WORDS;
        let tables_at = joins_at + if tile.is_split { meta.num_tokens() * JOIN_WORDS } else { 0 };

        let blocks_of = |len: u32| (len as usize).div_ceil(shape.block_size);
        let blocks: usize = meta.seq_lens.iter().map(|len| blocks_of(*len)).sum();
        let len = tables_at + room(blocks);
        let mut words = Vec::with_capacity(len);
        let mut joins = vec![0; tables_at - joins_at];
        let mut table_starts = Vec::with_capacity(meta.num_seqs());
        let mut table_start = 0;
        for len in &meta.seq_lens {
            table_starts.push(table_start);
            table_start += blocks_of(*len) as u32;
        }
        words.push(count as u32);
        let mut first_item = 0;
        for of in &tiles {
            let table = table_starts[of.seq];
            let (token, tokens) = (of.first_token as u32, of.tokens as u32);
            let (span, spans) = (of.first_span as u32, of.spans as u32);
            if tile.is_split {
                let of_tile = (0..tokens).flat_map(|t| [first_item, t, span, spans]);
                let joined = &mut joins[of.first_token * JOIN_WORDS..][..of.tokens * JOIN_WORDS];
                joined.iter_mut().zip(of_tile).for_each(|(to, word)| *to = word);
                words.extend((span..span + spans).flat_map(|s| [token, tokens, table, s, 1]));
                first_item += spans;
            } else {
                words.extend([token, tokens, table, span, spans]);
            }
        }
        words.resize(seen_at, 0);
        for seq in 0..meta.num_seqs() {
            words.extend(meta.tokens_of(seq).flat_map(|t| {
                let position = meta.positions[t] as usize;
                let (first, last) = (mask.first_visible(position), meta.last_visible(seq, t, mask));
                [first, last, position].map(|p| p as u32)
            }));
        }
        words.extend(joins);
        for (len, table) in meta.seq_lens.iter().zip(&meta.block_tables) {
            words.extend_from_slice(&table[..blocks_of(*len)]);
        }
        words.resize(len, 0);
        let form = PlanForm { tile, items, seen_at, joins_at, tables_at, len };
        Plan { form, words }
    }

    /// Returns the largest tile that the batch and the device's shared memory have room for.
    fn tile(&self, meta: &AttentionMetadata) -> Tile {
        let group = self.num_heads / self.shape.num_kv_heads;
        let longest = (0..meta.num_seqs()).map(|seq| meta.tokens_of(seq).len()).max().unwrap_or(1);
        let of_rows = |rows: usize| {
            let heads = group.div_ceil(group.div_ceil(rows));
            Tile {
                heads,
                tokens: (rows / heads).min(longest.max(1)),
                group,
                head_dim: self.shape.head_dim,
                value_head_dim: self.shape.value_head_dim,
                format: self.format,
                is_split: false,
                has_soft_cap: self.has_soft_cap,
            }
        };
        let mut rows = ROWS_MAX;
        let shared_bytes = self.shared_bytes.min(SHARED_BYTES_MAX);
        while rows > 1 && of_rows(rows).shared_bytes() > shared_bytes {
            rows /= 2;
        }
        of_rows(rows)
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

/// Returns all tokens that are left, in tiles of at most `tokens`, in order.
fn tiles(
    meta: &AttentionMetadata,
    left: Option<&[usize]>,
    mask: AttentionMask,
    tokens: usize,
) -> Vec<TokenTile> {
    let mut tiles = Vec::new();
    for seq in 0..meta.num_seqs() {
        let mut range = meta.tokens_of(seq);
        range.end = left.map_or(range.end, |left| range.start + left[seq]);
        for first_token in range.clone().step_by(tokens) {
            let count = tokens.min(range.end - first_token);
            let first = meta.positions[first_token] as usize;
            let last = meta.last_visible(seq, first_token + count - 1, mask);
            let first_span = mask.first_visible(first) / SPAN;
            let spans = last / SPAN + 1 - first_span;
            tiles.push(TokenTile { seq, first_token, tokens: count, first_span, spans });
        }
    }
    tiles
}
