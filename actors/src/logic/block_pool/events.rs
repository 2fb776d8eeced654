//! What happened to cached blocks, for routers that follow an engine's prefix cache.

use serde::{Deserialize, Serialize};

use crate::logic::{
    block_hash::{BlockHash, ExtraKey},
    ids::TokenId,
};

/// vLLM's KV cache events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvCacheEvent {
    /// Consecutive full blocks of one request can be hit from now on.
    BlockStored {
        /// One a block, in order.
        block_hashes: Vec<BlockHash>,
        /// Hash of the block before the first; `None` at the beginning of a prompt.
        parent_block_hash: Option<BlockHash>,
        /// The blocks' tokens: `block_hashes.len() * block_size` of them.
        token_ids: Vec<TokenId>,
        /// Tokens a block holds.
        block_size: usize,
        /// One list a block.
        extra_keys: Vec<Vec<ExtraKey>>,
        /// The KV cache group.
        group_idx: u32,
    },
    /// These can no longer be hit in one block that held them.
    BlockRemoved {
        /// Their hashes.
        block_hashes: Vec<BlockHash>,
    },
    /// Nothing can be hit any more.
    AllBlocksCleared,
}
