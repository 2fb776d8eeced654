//! The places of keys and values in an arena.

use cubecl::prelude::*;

use crate::KvCacheShape;
use crate::cube::WordFormat;

/// The properties of keys and values that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KvForm {
    /// Elements of a key.
    pub(crate) head_dim: usize,
    /// Elements of a value.
    pub(crate) value_head_dim: usize,
    /// Whether a value is the first elements of its key.
    pub(crate) values_in_keys: bool,
    /// Format of keys and values.
    pub(crate) format: WordFormat,
}

impl KvForm {
    pub(crate) fn new(shape: &KvCacheShape, format: WordFormat) -> Self {
        let KvCacheShape { head_dim, value_head_dim, values_in_keys, .. } = *shape;
        Self { head_dim, value_head_dim, values_in_keys, format }
    }

    /// Returns the chunks of a key.
    pub(crate) const fn key_chunks(self) -> usize {
        self.head_dim / self.format.per_chunk()
    }

    /// Returns the chunks of a value.
    pub(crate) const fn value_chunks(self) -> usize {
        self.value_head_dim / self.format.per_chunk()
    }
}

/// The places of a layer's keys and values, in chunks of four words.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Pages {
    pub(crate) block_size: usize,
    pub(crate) num_kv_heads: usize,
    /// Chunks of a page.
    page: usize,
    /// The place of the values in a page.
    values_at: usize,
    #[cube(comptime)]
    form: KvForm,
}

#[cube]
impl Pages {
    /// Returns the place of the first chunk of a key. The next is `block_size` chunks later.
    pub(crate) fn key_at(&self, block: usize, kv_head: usize, offset: usize) -> usize {
        let chunks = comptime!(self.form.key_chunks());
        block * self.page + kv_head * self.block_size * chunks + offset
    }

    /// Returns the place of a chunk of a value.
    pub(crate) fn value_at(
        &self,
        block: usize,
        kv_head: usize,
        offset: usize,
        chunk: usize,
    ) -> usize {
        if comptime!(self.form.values_in_keys) {
            self.key_at(block, kv_head, offset) + chunk * self.block_size
        } else {
            let chunks = comptime!(self.form.value_chunks());
            let of_block = block * self.page + self.values_at;
            of_block + (kv_head * self.block_size + offset) * chunks + chunk
        }
    }

    /// Returns the place of a chunk of the value whose first chunk is at `place`.
    pub(crate) fn value_chunk_at(&self, place: usize, chunk: usize) -> usize {
        if comptime!(self.form.values_in_keys) {
            place + chunk * self.block_size
        } else {
            place + chunk
        }
    }

    /// Returns the place of the scale of a key or of a value.
    pub(crate) fn scale_at(&self, block: usize, kv_head: usize, offset: usize) -> usize {
        (block * self.num_kv_heads + kv_head) * self.block_size + offset
    }
}
