//! The place of an element in a CPU arena, the same for every instruction set.
//!
//! Keys: `[block][kv_head][head_dim / n][lanes][n]`, with n = 2 in bf16 and 1 otherwise. One vector
//! then holds the same dimensions of sixteen keys, and a score needs no sum across lanes. `lanes`
//! is the block size rounded up to whole vectors.
//!
//! Values: `[block][kv_head][offset][value_dim]`. One vector then holds neighbouring dimensions of
//! one value. `value_dim` is `head_dim` rounded up to whole vectors.
//!
//! The int8 keys, or values, of a head are followed by their scales, `[lanes]` f32. A block thus
//! holds everything that a reader of it needs.

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

    /// Returns the elements of one head's keys in one block, without scales.
    pub(crate) fn keys_len(&self) -> usize {
        self.lanes * self.head_dim
    }

    /// Returns the elements of one head's values in one block, without scales.
    pub(crate) fn values_len(&self) -> usize {
        self.block_size * self.value_dim
    }

    /// Returns the elements that the scales of one head's keys, or values, take up in one block.
    pub(crate) fn scales_len<E: KvElement>(&self) -> usize {
        self.lanes * E::SCALE
    }

    /// Returns the bytes of one head in one block, keys and values.
    pub(crate) fn head_bytes<E: KvElement>(&self) -> usize {
        (self.keys_len() + self.values_len() + 2 * self.scales_len::<E>()) * size_of::<E>()
    }

    /// Returns the index of a head of a block among the heads of all blocks.
    pub(crate) fn head_index(&self, block: usize, kv_head: usize) -> usize {
        block * self.num_kv_heads + kv_head
    }

    /// Returns the place of a key's dimension `d` within its head.
    #[cfg(test)]
    pub(crate) fn key_at<E: KvElement>(&self, offset: usize, d: usize) -> usize {
        (d / E::INPUTS * self.lanes + offset) * E::INPUTS + d % E::INPUTS
    }

    /// Returns the place of a value's dimension `d` within its head.
    pub(crate) fn value_at(&self, offset: usize, d: usize) -> usize {
        offset * self.value_dim + d
    }
}
