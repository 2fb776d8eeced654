//! The place of an element in a CPU arena, the same for every instruction set.
//!
//! Keys: `[block][kv_head][head_dim / n][lanes][n]`, with n = 2 in bf16 and 1 otherwise. One vector
//! then holds the same dimensions of sixteen keys, and a score needs no sum across lanes. `lanes`
//! is the block size rounded up to whole vectors.
//!
//! Values: `[block][kv_head][offset][value_dim]`. One vector then holds neighbouring dimensions of
//! one value. `value_dim` is `value_head_dim` rounded up to whole vectors.
//!
//! The int8 keys, or values, of a head are followed by their scales, `[lanes]` f32. A block thus
//! holds everything that a reader of it needs.
//!
//! Where values are parts of keys, the arena of values is empty. A value then has the scale of its
//! key.
//!
//! A layer's part of a block is a *page* on whole cache lines: the keys of all heads, then their
//! values. In a layer with a state, the page is the state instead, `[state_len]` f32. Pages have
//! room for the larger of both, so that groups of layers of both kinds share them.

use super::{KvCacheShape, KvElement};
use crate::simd::LANES;

/// Offsets into the key and value arenas of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvLayout {
    pub(crate) num_blocks: usize,
    pub(crate) block_size: usize,
    pub(crate) num_kv_heads: usize,
    /// Elements of a key.
    pub(crate) head_dim: usize,
    /// Elements of a value.
    pub(crate) value_head_dim: usize,
    /// `block_size` rounded up to whole vectors.
    pub(crate) lanes: usize,
    /// `value_head_dim` rounded up to whole vectors.
    pub(crate) value_dim: usize,
    /// Whether a value is the first elements of its key.
    pub(crate) values_in_keys: bool,
    /// Numbers of a state, f32.
    pub(crate) state_len: usize,
}

const CACHE_LINE_BYTES: usize = 64;

impl KvLayout {
    pub(crate) fn new(shape: &KvCacheShape) -> Self {
        Self {
            num_blocks: shape.num_blocks,
            block_size: shape.block_size,
            num_kv_heads: shape.num_kv_heads,
            head_dim: shape.head_dim,
            value_head_dim: shape.value_head_dim,
            lanes: shape.block_size.next_multiple_of(LANES),
            value_dim: shape.value_head_dim.next_multiple_of(LANES),
            values_in_keys: shape.values_in_keys,
            state_len: shape.state_len,
        }
    }

    /// Returns the elements of one head's keys in one block, without scales.
    pub(crate) fn keys_len(&self) -> usize {
        self.lanes * self.head_dim
    }

    /// Returns the elements of one head's stored values in one block, without scales.
    pub(crate) fn values_len(&self) -> usize {
        if self.values_in_keys { 0 } else { self.block_size * self.value_dim }
    }

    /// Returns the elements that the scales of one head's keys take up in one block.
    pub(crate) fn key_scales_len<E: KvElement>(&self) -> usize {
        self.lanes * E::SCALE
    }

    /// Returns the elements that the scales of one head's stored values take up in one block.
    pub(crate) fn value_scales_len<E: KvElement>(&self) -> usize {
        if self.values_in_keys { 0 } else { self.key_scales_len::<E>() }
    }

    /// Returns the bytes of one head in one block, keys and values.
    pub(crate) fn head_bytes<E: KvElement>(&self) -> usize {
        let keys = self.keys_len() + self.key_scales_len::<E>();
        let values = self.values_len() + self.value_scales_len::<E>();
        (keys + values) * size_of::<E>()
    }

    /// Returns the elements of a page.
    #[inline(always)]
    pub(crate) fn page_len<E: KvElement>(&self) -> usize {
        let of_heads = self.num_kv_heads * self.head_bytes::<E>();
        let bytes = of_heads.max(self.state_len * size_of::<f32>());
        bytes.next_multiple_of(CACHE_LINE_BYTES) / size_of::<E>()
    }

    /// Returns the place of one head's keys in one block.
    #[inline(always)]
    pub(crate) fn keys_at<E: KvElement>(&self, block: usize, kv_head: usize) -> usize {
        block * self.page_len::<E>() + kv_head * (self.keys_len() + self.key_scales_len::<E>())
    }

    /// Returns the place of one head's values in one block.
    #[inline(always)]
    pub(crate) fn values_at<E: KvElement>(&self, block: usize, kv_head: usize) -> usize {
        let keys = self.num_kv_heads * (self.keys_len() + self.key_scales_len::<E>());
        let value = self.values_len() + self.value_scales_len::<E>();
        block * self.page_len::<E>() + keys + kv_head * value
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
