//! Dimensions of the arena.

use super::{KvDtype, KvLayout};
use crate::KernelError;

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
    /// Returns the bytes of the whole arena on the CPU, with padding and scales. A GPU needs no
    /// more.
    #[must_use]
    pub fn bytes(&self, dtype: KvDtype) -> usize {
        let layout = KvLayout::new(self);
        let page_bytes = match dtype {
            KvDtype::F32 => layout.page_len::<f32>() * size_of::<f32>(),
            KvDtype::F16 | KvDtype::Bf16 => layout.page_len::<u16>() * size_of::<u16>(),
            KvDtype::Int8 => layout.page_len::<i8>(),
        };
        self.num_layers * self.num_blocks * page_bytes
    }

    /// Returns the most blocks on a device whose largest buffer has `max_buffer_bytes`. All keys of
    /// a layer share one buffer, and all its values another.
    #[must_use]
    pub fn max_num_blocks(&self, dtype: KvDtype, max_buffer_bytes: u64) -> usize {
        let head_dim = self.head_dim.max(self.value_head_dim);
        let block_bytes = self.block_size * self.num_kv_heads * head_dim * dtype.size();
        usize::try_from(max_buffer_bytes / block_bytes.max(1) as u64).unwrap_or(usize::MAX)
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
