//! States: each token reads the state that the token before it left, and writes its own over it.
//!
//! A block has the state after the last of its tokens that are computed. A full block is therefore
//! a snapshot at its end. A request keeps the block of its last token, and a hit needs only its
//! last block (vLLM's `MambaManager`). A state that is written over cannot be read again, so a
//! request's last, partly full block has no tail: after a crash the request goes on from its last
//! full block.

/// Returns the number of tokens, from the first one, whose states no token from `position` on
/// reads: all but that of the token just before it.
pub(super) fn num_unread(position: usize) -> usize {
    position.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::{
        kv_cache::{KvKind, block_pool::BlockPool, hashes::BlockHash, sliding::longest_hit},
        request::ids::BlockId,
    };

    /// Returns the longest hit among blocks of two tokens, which are cached if `pattern` has a `#`
    /// at their place. They have the ids from 1 on.
    fn hit(pattern: &str) -> Vec<BlockId> {
        let mut pool = BlockPool::new(pattern.len() as u32 + 1);
        let hashes: Vec<_> = (1..=pattern.len()).map(|n| BlockHash([n as u8; 32])).collect();
        for (index, _) in pattern.match_indices('#') {
            pool.cache_block(index as BlockId + 1, hashes[index], 0);
        }
        longest_hit(&pool, 0, &hashes, |num_blocks| KvKind::State.first_block(num_blocks, 2))
    }

    /// The rule of vLLM's `MambaManager.find_longest_cache_hit`: the last cached block, and null
    /// blocks before it.
    #[test]
    fn a_hit_needs_its_last_block_alone() {
        assert_eq!((hit("##"), hit(".#")), (vec![0, 2], vec![0, 2]));
        assert_eq!((hit("#..#."), hit("#....")), (vec![0, 0, 0, 4], vec![1]));
        assert_eq!((hit("...."), hit("")), (vec![], vec![]));
    }

    /// The rule of vLLM's `MambaManager.get_num_skipped_tokens`.
    #[test]
    fn only_the_state_of_the_last_token_is_read() {
        assert_eq!([0, 1, 2, 33].map(num_unread), [0, 0, 1, 32]);
    }
}
