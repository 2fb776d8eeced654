//! Attention by dot products of bfloat16, where the processor has them in vectors.
//!
//! Queries, keys, values and weights are rounded to bfloat16, and products of two are then exact.
//! Sums are f32, and so is the softmax. A piece of work is some query tokens of a sequence, for the
//! query heads of one key-value head. It lays out [`SPAN_KEYS`] keys and values at a time, as
//! [`pack`] says, and passes its rows over them in register tiles ([`tile`]). The running softmax
//! joins spans in their order. A row's sums depend on neither its tile nor its piece.
//!
//! | | |
//! |---|---|
//! | bytes moved | q and o once; k and v once for every 256 query rows, and as bf16 from L2 once a tile |
//! | tolerance | `2⁻⁷ · max|v|` against f64, for scores below 8: each rounding is 2⁻⁹ of its operand |

mod pack;
mod tile;

use std::ops::Range;

use crate::linear::groups::Counted;
use crate::simd::{Isa, Kernel, LANES, Simd, Task, Tiles};
use crate::threads::{SharedMut, for_each_piece_of_stream};
use crate::workspace::Scratch;
use crate::{AttentionMask, AttentionMetadata, AttentionParams};
use pack::Line;
use tile::{ROWS_MAX, Span};

/// Keys of a block, and elements of a chunk of a head. Element `i` of a chunk is paired with
/// element `i + 16`, and so is key `i` of a block, because [`Simd::narrow_pairs`] does that.
const BLOCK: usize = 2 * LANES;

/// Most keys that are laid out at a time. Keys and values of 64 elements then take 64 KiB.
const SPAN_KEYS: usize = 256;

/// Most rows of a piece. A row is one query head of one token.
const PIECE_ROWS: usize = 256;

/// Heads of tokens: head `h` of token `t` begins at element `first + t · stride + h · head_dim`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads<'a> {
    pub(super) data: &'a [f32],
    pub(super) first: usize,
    pub(super) stride: usize,
}

impl<'a> Heads<'a> {
    /// Returns one head of a token.
    #[inline(always)]
    fn head(&self, token: usize, head: usize, head_dim: usize) -> &'a [f32] {
        &self.data[self.first + token * self.stride + head * head_dim..][..head_dim]
    }
}

/// Returns whether attention with these parameters may be computed here.
pub(super) fn takes(isa: Isa, params: &AttentionParams) -> bool {
    let AttentionParams { mask, scale, soft_cap, alibi_slopes, sinks, rounds_to_bf16, .. } = params;
    let sees_both_sides = matches!(mask, AttentionMask::Both | AttentionMask::Around(_));
    let is_plain = soft_cap.is_none() && alibi_slopes.is_none() && sinks.is_none() && *scale > 0.0;
    *rounds_to_bf16 && isa.rounds_pairs() && sees_both_sides && is_plain
}

/// Computes attention of whole sequences into o, `[num_tokens, num_heads * head_dim]`, on an
/// instruction set that [`takes`] accepts.
pub(super) fn attention(
    isa: Isa,
    [q, k, v]: [Heads<'_>; 3],
    [num_kv_heads, head_dim]: [usize; 2],
    meta: &AttentionMetadata,
    params: &AttentionParams,
    o: &mut [f32],
) {
    for (seq, len) in meta.seq_lens.iter().enumerate() {
        let positions = meta.positions[meta.tokens_of(seq)].iter().copied();
        let is_whole = positions.eq(0..*len);
        assert!(is_whole, "encoder_attention: sequence {seq} of {len} tokens is not whole");
    }
    let group = params.num_heads / num_kv_heads;
    let o = SharedMut::new(o);
    isa.run(Batch { q, k, v, num_kv_heads, group, head_dim, meta, params, o });
}

/// The whole batch.
struct Batch<'a> {
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    num_kv_heads: usize,
    /// Query heads of a key-value head.
    group: usize,
    head_dim: usize,
    meta: &'a AttentionMetadata,
    params: &'a AttentionParams,
    o: SharedMut<'a, f32>,
}

impl Batch<'_> {
    /// Returns the most query tokens of a piece.
    fn piece_tokens(&self) -> usize {
        (PIECE_ROWS / self.group).max(1)
    }

    /// Returns the pieces of a sequence.
    fn pieces_of(&self, seq: usize) -> usize {
        self.meta.tokens_of(seq).len().div_ceil(self.piece_tokens()) * self.num_kv_heads
    }

    /// Returns the rough number of multiply-adds. A dot product of bfloat16 has two.
    fn work(&self) -> usize {
        let visible: usize = self.meta.seq_lens.iter().map(|len| (*len as usize).pow(2)).sum();
        visible * self.num_kv_heads * self.group * self.head_dim
    }
}

impl Kernel for Batch<'_> {
    type Output = ();
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if const { !S::HAS_DOT_BF16 } {
            unreachable!("this instruction set has no products of bfloat16");
        } else {
            let batch = &self;
            let pieces = Counted::new(self.meta.num_seqs(), |seq| self.pieces_of(seq));
            for_each_piece_of_stream(pieces.total(), self.work(), |piece| {
                let (seq, piece) = pieces.place(piece);
                let (kv_head, part) = (piece % self.num_kv_heads, piece / self.num_kv_heads);
                let (all, most) = (self.meta.tokens_of(seq), self.piece_tokens());
                let start = all.start + part * most;
                let tokens = start..all.end.min(start + most);
                simd.enter(Piece {
                    batch,
                    first_token: all.start,
                    len: all.len(),
                    kv_head,
                    tokens,
                });
            });
        }
    }
}

/// Some query tokens of a sequence, for the query heads of one key-value head.
struct Piece<'a> {
    batch: &'a Batch<'a>,
    /// The sequence's first token.
    first_token: usize,
    /// The sequence's tokens.
    len: usize,
    kv_head: usize,
    tokens: Range<usize>,
}

impl Piece<'_> {
    /// Returns the position and the query head of row `r`.
    fn position_and_head(&self, r: usize) -> (usize, usize) {
        let group = self.batch.group;
        (self.tokens.start - self.first_token + r / group, self.kv_head * group + r % group)
    }

    /// Returns the keys that row `r` sees.
    fn seen(&self, r: usize) -> Range<usize> {
        let (position, mask) = (self.position_and_head(r).0, self.batch.params.mask);
        mask.first_visible(position)..mask.last_visible(position, self.len) + 1
    }
}

impl<S: Simd> Task<S> for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let Batch { q, k, v, head_dim, .. } = *self.batch;
        let rows = self.tokens.len() * self.batch.group;
        let (tiles, chunks) = (Tiles::new(rows, ROWS_MAX), head_dim.div_ceil(BLOCK));
        // `[tile][chunk][row]`
        let mut queries = Scratch::<[u32; LANES]>::new(rows * chunks);
        for tile in tiles.clone() {
            for (at, r) in tile.clone().enumerate() {
                let (position, head) = self.position_and_head(r);
                let row = q.head(self.first_token + position, head, head_dim);
                let out = &mut queries[tile.start * chunks + at..tile.end * chunks];
                pack::query(s, row, out, tile.len());
            }
        }
        // A later row sees no key before those that an earlier one sees, and its last is no
        // earlier.
        let seen = self.seen(0).start..self.seen(rows - 1).end;
        let keys_at_once = SPAN_KEYS.min(self.len.next_multiple_of(BLOCK));
        let mut keys = Scratch::<[Line; 2]>::new(keys_at_once / BLOCK * chunks * LANES);
        let mut values = Scratch::<[Line; 2]>::new(keys_at_once / BLOCK * chunks * LANES);
        let mut sums = Scratch::<[f32; LANES]>::zeroed(rows * 2 * chunks);
        let mut softmax = Scratch::<[f32; 2]>::new(rows);
        softmax.fill([f32::NEG_INFINITY, 0.0]);
        let mut scores = Scratch::<[[f32; LANES]; 2]>::new(keys_at_once / BLOCK * ROWS_MAX);
        let mut weights = Scratch::<[u32; LANES]>::new(keys_at_once / BLOCK * ROWS_MAX);
        for start in (seen.start / SPAN_KEYS * SPAN_KEYS..seen.end).step_by(SPAN_KEYS) {
            let len = SPAN_KEYS.min(self.len - start);
            let token = self.first_token + start;
            let key = |i: usize| k.head(token + i, self.kv_head, head_dim);
            pack::keys(s, len, chunks, key, &mut keys);
            let value = |i: usize| v.head(token + i, self.kv_head, head_dim);
            pack::values(s, len, chunks, value, &mut values);
            let span = Span { piece: &self, start, len, chunks, keys: &keys, values: &values };
            for tile in tiles.clone() {
                let queries = &queries[tile.start * chunks..tile.end * chunks];
                let sums = &mut sums[tile.start * 2 * chunks..tile.end * 2 * chunks];
                let softmax = &mut softmax[tile.clone()];
                span.add(s, &tile, queries, (&mut scores, &mut weights), (sums, softmax));
            }
        }
        for (r, (sums, [_, sum])) in sums.chunks_exact(2 * chunks).zip(softmax.iter()).enumerate() {
            let (position, head) = self.position_and_head(r);
            let place = (self.first_token + position) * self.batch.params.num_heads + head;
            // SAFETY: pieces have different tokens or heads, so their rows of o do not overlap.
            let out = unsafe { self.batch.o.slice(place * head_dim, head_dim) };
            let inverse = sum.recip();
            for (out, x) in out.iter_mut().zip(sums.as_flattened()) {
                // Within a larger tile, a weight of zero may turn −0 into +0. This makes all zeros
                // +0.
                *out = x * inverse + 0.0;
            }
        }
    }
}
