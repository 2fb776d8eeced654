//! Full attention: each token reads all earlier ones. A request keeps the blocks of all its tokens,
//! and a hit is a run of cached blocks from the first one on.

use crate::logic::{
    kv_cache::{block_pool::BlockPool, hashes::BlockHash},
    request::ids::BlockId,
};

/// Returns the cached blocks of a group that continue each other from the first of `hashes` on.
pub(super) fn longest_hit(pool: &BlockPool, group: usize, hashes: &[BlockHash]) -> Vec<BlockId> {
    hashes.iter().map_while(|hash| pool.get_cached_block(hash, group)).collect()
}
