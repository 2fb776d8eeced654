//! Dimensions of the arena.

use super::{KvDtype, KvLayout};
use crate::KernelError;

/// Dimensions of a paged KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvCacheShape {
    /// Attention layers.
    pub num_layers: usize,
    /// Blocks of each layer.
    pub num_blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
    /// Key-value heads.
    pub num_kv_heads: usize,
    /// Elements of a head; even.
    pub head_dim: usize,
}

impl KvCacheShape {
    /// Returns the bytes of the whole arena on the CPU, with padding and scales. A GPU needs no
    /// more.
    #[must_use]
    pub fn bytes(&self, dtype: KvDtype) -> usize {
        let layout = KvLayout::new(self);
        let heads = self.num_layers * self.num_blocks * self.num_kv_heads;
        heads
            * match dtype {
                KvDtype::F32 => layout.head_bytes::<f32>(),
                KvDtype::F16 | KvDtype::Bf16 => layout.head_bytes::<u16>(),
                KvDtype::Int8 => layout.head_bytes::<i8>(),
            }
    }

    /// Returns the most blocks on a device whose largest buffer has `max_buffer_bytes`. All keys of
    /// a layer share one buffer, and all its values another.
    #[must_use]
    pub fn max_num_blocks(&self, dtype: KvDtype, max_buffer_bytes: u64) -> usize {
        let block_bytes = self.block_size * self.num_kv_heads * self.head_dim * dtype.size();
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
        let fields = [
            ("num_layers", self.num_layers),
            ("num_blocks", self.num_blocks),
            ("block_size", self.block_size),
            ("num_kv_heads", self.num_kv_heads),
            ("head_dim", self.head_dim),
        ];
        for (field, value) in fields {
            KernelError::require(value > 0, WHAT, field, 0, "at least 1")?;
        }
        let even = self.head_dim.is_multiple_of(2);
        KernelError::require(even, WHAT, "head_dim", self.head_dim as u64, "even")?;
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
