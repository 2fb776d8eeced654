//! Where an element lies in a CPU arena, for both dtypes and every instruction set.
//!
//! Keys: `[block][kv_head][head_dim / 2][lanes][2]`, so that one vector holds the same pair of
//! dimensions of sixteen keys, and a score needs no sum across lanes; `lanes` is the block size
//! rounded up to the vector width. Values: `[block][kv_head][offset][head_dim]`, so that one vector
//! holds neighbouring dimensions of one value. Both arenas have equal length.

use super::KvCacheShape;

/// Keys that one vector of scores covers.
pub(crate) const KEY_LANES: usize = 16;

/// Offsets into the key and value arenas of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvLayout {
    pub(crate) num_blocks: usize,
    pub(crate) block_size: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// `block_size` rounded up to whole vectors.
    pub(crate) lanes: usize,
}

impl KvLayout {
    pub(crate) fn new(shape: &KvCacheShape) -> Self {
        Self {
            num_blocks: shape.num_blocks,
            block_size: shape.block_size,
            num_kv_heads: shape.num_kv_heads,
            head_dim: shape.head_dim,
            lanes: shape.block_size.next_multiple_of(KEY_LANES),
        }
    }

    /// Elements of one head's keys (or values) in one block.
    pub(crate) fn head_len(&self) -> usize {
        self.lanes * self.head_dim
    }

    /// Elements of one block's keys (or values).
    pub(crate) fn block_len(&self) -> usize {
        self.num_kv_heads * self.head_len()
    }

    /// Start of a head's keys (or values) in a block.
    pub(crate) fn head_start(&self, block: usize, kv_head: usize) -> usize {
        block * self.block_len() + kv_head * self.head_len()
    }

    /// A key's dimension `d` within its head.
    pub(crate) fn key_at(&self, offset: usize, d: usize) -> usize {
        (d / 2 * self.lanes + offset) * 2 + d % 2
    }

    /// A value's dimension `d` within its head.
    pub(crate) fn value_at(&self, offset: usize, d: usize) -> usize {
        offset * self.head_dim + d
    }
}
