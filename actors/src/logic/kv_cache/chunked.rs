//! Chunked attention: each token reads the tokens of its chunk. A request keeps the blocks of its
//! chunk, and a hit needs those that belong to the chunk of its next token.

/// Returns the number of tokens, from the first one, that no token from `position` on reads: those
/// before its chunk.
pub(super) fn num_unread(position: usize, chunk: usize) -> usize {
    position - position.checked_rem(chunk).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::kv_cache::{
        KvKind, block_pool::BlockPool, hashes::BlockHash, sliding::longest_hit,
    };

    /// Returns the number of blocks of two tokens in the longest hit. A block is cached if
    /// `pattern` has a `#` at its place.
    fn hit(chunk: usize, pattern: &str) -> usize {
        let mut pool = BlockPool::new(pattern.len() as u32 + 1);
        let hashes: Vec<_> = (1..=pattern.len()).map(|n| BlockHash([n as u8; 32])).collect();
        for (index, _) in pattern.match_indices('#') {
            pool.cache_block(index as u32 + 1, hashes[index], 0);
        }
        let kind = KvKind::ChunkedLocal { chunk };
        longest_hit(&pool, 0, &hashes, |num_blocks| kind.first_block(num_blocks, 2)).len()
    }

    /// vLLM's `test_chunked_local_attention_possible_cached_prefix`: chunks of four tokens.
    #[test]
    fn a_hit_needs_the_blocks_of_its_chunk() {
        let expected = [("#", 1), ("#.", 2), ("..", 2), (".", 0), ("###", 3), ("##.", 2)];
        for (pattern, expected) in expected {
            assert_eq!(hit(4, pattern), expected, "{pattern}");
        }
        assert_eq!((hit(6, "..#."), hit(6, "...#.")), (3, 4));
    }

    #[test]
    fn a_chunk_may_begin_within_a_block() {
        // Chunks begin at tokens 0, 3, 6: in blocks 0, 1 and 3.
        assert_eq!((hit(3, ".#"), hit(3, ".."), hit(3, "...")), (2, 0, 3));
    }

    /// vLLM's `test_chunked_local_attention_remove_skipped_blocks`.
    #[test]
    fn a_chunk_that_is_over_is_not_read() {
        let passed = [0, 2, 4, 6, 12].map(|position| num_unread(position, 4) / 2);
        assert_eq!(passed, [0, 0, 2, 2, 6]);
        assert_eq!(num_unread(7, 0), 7);
    }
}
