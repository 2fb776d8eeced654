//! Dimensions of the arena.

use super::{KvDtype, KvLayout};
use crate::KernelError;

/// Bytes of the chunks that a GPU's arena consists of.
const GPU_CHUNK_BYTES: usize = 16;

/// Dimensions of a paged KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvCacheShape {
    /// Layers.
    pub num_layers: usize,
    /// Blocks of each layer.
    pub num_blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
    /// Key-value heads; 0 if all layers have a state.
    pub num_kv_heads: usize,
    /// Elements of a key of one head; even.
    pub head_dim: usize,
    /// Elements of a value of one head: `head_dim` in most models, fewer in multi-head latent
    /// attention.
    pub value_head_dim: usize,
    /// Whether a value is the first `value_head_dim` elements of its key, so that it is not stored
    /// a second time.
    pub values_in_keys: bool,
    /// Numbers of a sequence's state in a layer that has one, f32; 0 if none has. A block has one
    /// state.
    pub state_len: usize,
}

impl KvCacheShape {
    /// Most bytes of a GPU's arena of a layer whose pages may be states. Kernels count the numbers
    /// of states in 32 bits.
    pub(crate) const STATE_ARENA_BYTES_MAX: u64 = 4 * (1 << 32);

    /// Returns the bytes of the whole arena, with padding and scales: at most so many on any
    /// device.
    #[must_use]
    pub fn bytes(&self, dtype: KvDtype) -> usize {
        let layout = KvLayout::new(self);
        let page_bytes = match dtype {
            KvDtype::F32 => layout.page_len::<f32>() * size_of::<f32>(),
            KvDtype::F16 | KvDtype::Bf16 => layout.page_len::<u16>() * size_of::<u16>(),
            // A GPU has the scales outside of pages, so a large state has no room for them.
            KvDtype::Int8 => {
                let scales = if self.state_len > 0 { self.scale_bytes() } else { 0 };
                layout.page_len::<i8>().max(self.gpu_page_bytes(dtype) + scales)
            }
        };
        self.num_layers * self.num_blocks * page_bytes
    }

    /// Returns the most blocks on a device whose largest buffer has `max_buffer_bytes`. All pages
    /// of a layer share one buffer.
    #[must_use]
    pub fn max_num_blocks(&self, dtype: KvDtype, max_buffer_bytes: u64) -> usize {
        let of_states = if self.state_len > 0 { Self::STATE_ARENA_BYTES_MAX } else { u64::MAX };
        let page_bytes = self.gpu_page_bytes(dtype).max(1) as u64;
        usize::try_from(max_buffer_bytes.min(of_states) / page_bytes).unwrap_or(usize::MAX)
    }

    /// Returns the bytes of a page on a GPU, in whole chunks of 16 bytes, without scales.
    pub(super) fn gpu_page_bytes(&self, dtype: KvDtype) -> usize {
        let of_values = if self.values_in_keys { 0 } else { self.value_head_dim };
        let tokens = self.block_size * self.num_kv_heads;
        let of_heads = tokens * (self.head_dim + of_values) * dtype.size();
        of_heads.max(self.state_len * size_of::<f32>()).next_multiple_of(GPU_CHUNK_BYTES)
    }

    /// Returns the bytes of the scales of a block.
    fn scale_bytes(&self) -> usize {
        let of_values = if self.values_in_keys { 0 } else { 1 };
        self.block_size * self.num_kv_heads * (1 + of_values) * size_of::<f32>()
    }

    /// Returns the number of slots of a layer.
    #[must_use]
    pub fn num_slots(&self) -> usize {
        self.num_blocks * self.block_size
    }

    /// # Panics
    /// If a slot is outside the arena.
    pub(crate) fn check_slots(&self, slots: &[u32]) {
        let num_slots = self.num_slots();
        for slot in slots {
            assert!((*slot as usize) < num_slots, "KV cache: slot {slot} of {num_slots}");
        }
    }

    /// Returns an error if a dimension is one that no arena can have.
    pub(crate) fn validate(&self) -> Result<(), KernelError> {
        const WHAT: &str = "KV cache";
        // Without heads, all layers have a state.
        let of_heads = |size: usize| if self.state_len > 0 { size.max(1) } else { size };
        let fields = [
            ("num_layers", self.num_layers),
            ("num_blocks", self.num_blocks),
            ("block_size", self.block_size),
            ("num_kv_heads", of_heads(self.num_kv_heads)),
            ("head_dim", of_heads(self.head_dim)),
            ("value_head_dim", of_heads(self.value_head_dim)),
        ];
        for (field, value) in fields {
            KernelError::require(value > 0, WHAT, field, 0, "at least 1")?;
        }
        let even = self.head_dim.is_multiple_of(2);
        KernelError::require(even, WHAT, "head_dim", self.head_dim as u64, "even")?;
        let value = self.value_head_dim;
        let fits = !self.values_in_keys || value.is_multiple_of(2) && value <= self.head_dim;
        let accepted = format!("an even part of a key of {}", self.head_dim);
        KernelError::require(fits, WHAT, "value_head_dim", value as u64, accepted)?;
        let slots = (self.num_blocks as u64).saturating_mul(self.block_size as u64);
        let accepted = format!("at most {} slots", u32::MAX);
        KernelError::require(
            slots <= u64::from(u32::MAX),
            WHAT,
            "num_blocks * block_size",
            slots,
            accepted,
        )
    }
}
