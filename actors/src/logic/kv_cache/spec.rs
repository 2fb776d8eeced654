//! The contents of a model's KV cache: groups of layers, and the size of their blocks.

use serde::{Deserialize, Serialize};

/// The contents of one model's KV cache. All groups take their blocks from one pool of equal
/// blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvSpec {
    /// Number of tokens that a block holds.
    pub block_size: usize,
    /// The groups. Each has block tables of its own.
    pub groups: Vec<KvGroup>,
}

/// Layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGroup {
    /// The tokens that the layers read.
    pub kind: KvKind,
    /// Indices of the layers.
    pub layers: Vec<usize>,
    /// Bytes of a block, in all of the layers together.
    pub block_bytes: u64,
}

/// The tokens that a layer reads, and therefore the blocks that a request keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvKind {
    /// All tokens so far.
    Full,
}

impl KvSpec {
    /// Returns the spec of a model whose layers all read all tokens so far.
    #[must_use]
    pub fn full(num_layers: usize, block_size: usize, block_bytes: u64) -> Self {
        let layers = (0..num_layers).collect();
        Self { block_size, groups: vec![KvGroup { kind: KvKind::Full, layers, block_bytes }] }
    }

    /// Returns the bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.block_bytes).max().unwrap_or_default()
    }
}
