//! Where an element lies in a CPU arena, for every instruction set.
//!
//! Keys: `[block][kv_head][head_dim / n][lanes][n]`, with n = 2 in bf16 and else 1, so that one
//! vector holds the same dimensions of sixteen keys and a score needs no sum across lanes; `lanes`
//! is the block size rounded up to whole vectors. Values: `[block][kv_head][offset][value_dim]`, so
//! that one vector holds neighbouring dimensions of one value; `value_dim` is `head_dim` rounded up.
//! int8 keys and values of a head are followed by their scales, `[lanes]` f32: a block holds all
//! that it takes to read it.

use super::{KvCacheShape, KvElement};
use crate::simd::LANES;

/// Offsets into the key and value arenas of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvLayout {
    pub(crate) num_blocks: usize,
    pub(crate) block_size: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// `block_size` rounded up to whole vectors.
    pub(crate) lanes: usize,
    /// `head_dim` rounded up to whole vectors.
    pub(crate) value_dim: usize,
}

impl KvLayout {
    pub(crate) fn new(shape: &KvCacheShape) -> Self {
        Self {
            num_blocks: shape.num_blocks,
            block_size: shape.block_size,
            num_kv_heads: shape.num_kv_heads,
            head_dim: shape.head_dim,
            lanes: shape.block_size.next_multiple_of(LANES),
            value_dim: shape.head_dim.next_multiple_of(LANES),
        }
    }

    /// Elements of one head's keys in one block, without scales.
    pub(crate) fn keys_len(&self) -> usize {
        self.lanes * self.head_dim
    }

    /// Elements of one head's values in one block, without scales.
    pub(crate) fn values_len(&self) -> usize {
        self.block_size * self.value_dim
    }

    /// Elements that the scales of one head's keys, or values, take up in one block.
    pub(crate) fn scales_len<E: KvElement>(&self) -> usize {
        self.lanes * E::SCALE
    }

    /// Bytes of one head in one block, keys and values.
    pub(crate) fn head_bytes<E: KvElement>(&self) -> usize {
        (self.keys_len() + self.values_len() + 2 * self.scales_len::<E>()) * size_of::<E>()
    }

    /// Which head of which block it is, among all.
    pub(crate) fn head_index(&self, block: usize, kv_head: usize) -> usize {
        block * self.num_kv_heads + kv_head
    }

    /// A key's dimension `d` within its head.
    #[cfg(test)]
    pub(crate) fn key_at<E: KvElement>(&self, offset: usize, d: usize) -> usize {
        (d / E::INPUTS * self.lanes + offset) * E::INPUTS + d % E::INPUTS
    }

    /// A value's dimension `d` within its head.
    pub(crate) fn value_at(&self, offset: usize, d: usize) -> usize {
        offset * self.value_dim + d
    }
}
