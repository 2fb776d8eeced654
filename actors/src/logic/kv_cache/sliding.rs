//! Sliding windows: each token reads the last tokens before it. A request keeps the blocks of its
//! window, and a hit needs the blocks that its next token reads.

use crate::logic::{
    kv_cache::{
        block_pool::{BlockPool, NULL_BLOCK},
        hashes::BlockHash,
    },
    request::ids::BlockId,
};

/// Returns the number of tokens, from the first one, that no token from `position` on reads.
pub(super) fn num_unread(position: usize, window: usize) -> usize {
    (position + 1).saturating_sub(window)
}

/// Returns the longest hit of a group. `first_block` returns the first block that a request reads
/// after so many full blocks, and never decreases. Null blocks stand for those before it.
///
/// After `n` blocks, a request needs the blocks from `first_block(n)` to `n`. If one of them is not
/// cached, no number up to `n` and above that block will do, because it needs that block as well.
pub(super) fn longest_hit(
    pool: &BlockPool,
    group: usize,
    hashes: &[BlockHash],
    first_block: impl Fn(usize) -> usize,
) -> Vec<BlockId> {
    let cached = |block: &usize| pool.get_cached_block(&hashes[*block], group);
    let mut num_blocks = hashes.len();
    let missing = |num_blocks: usize| {
        (first_block(num_blocks)..num_blocks).rev().find(|block| cached(block).is_none())
    };
    while let Some(block) = missing(num_blocks) {
        num_blocks = block;
    }
    let first = first_block(num_blocks);
    let mut blocks = vec![NULL_BLOCK; first];
    blocks.extend((first..num_blocks).filter_map(|block| cached(&block)));
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::kv_cache::KvKind;

    /// Returns the longest hit among blocks of two tokens, which are cached if `pattern` has a `#`
    /// at their place. They have the ids from 1 on.
    fn hit(kind: KvKind, pattern: &str) -> Vec<BlockId> {
        let mut pool = BlockPool::new(pattern.len() as u32 + 1);
        let hashes: Vec<_> = (1..=pattern.len()).map(|n| BlockHash([n as u8; 32])).collect();
        for (index, _) in pattern.match_indices('#') {
            pool.cache_block(index as BlockId + 1, hashes[index], 0);
        }
        longest_hit(&pool, 0, &hashes, |num_blocks| kind.first_block(num_blocks, 2))
    }

    /// vLLM's `test_sliding_window_possible_cached_prefix`: a window of four tokens spans two
    /// blocks before the next token.
    #[test]
    fn a_hit_needs_the_blocks_of_its_window() {
        let window_of_four = KvKind::Sliding { window: 4 };
        for (pattern, expected) in [
            ("..........", 0),
            ("#", 1),
            ("#.", 1),
            ("##", 2),
            ("##.", 2),
            ("###", 3),
            ("###.", 3),
            ("##.#..##.###", 12),
            ("##.#..##.#..", 8),
            ("##.#..#.#..", 2),
            (".#.#", 0),
        ] {
            assert_eq!(hit(window_of_four, pattern).len(), expected, "{pattern}");
        }
        assert_eq!(hit(window_of_four, "#..##."), [0, 0, 0, 4, 5]);
    }

    #[test]
    fn a_window_of_one_token_needs_no_block() {
        assert_eq!(hit(KvKind::Sliding { window: 1 }, "..."), [0, 0, 0]);
        assert_eq!(hit(KvKind::Sliding { window: 2 }, "#.#"), [0, 0, 3]);
        assert_eq!(hit(KvKind::Sliding { window: 2 }, "#.."), [1]);
    }

    /// vLLM's `test_sliding_window_remove_skipped_blocks`.
    #[test]
    fn a_window_passes_over_blocks() {
        let passed = [0, 4, 5, 6, 7, 11].map(|position| num_unread(position, 4) / 2);
        assert_eq!(passed, [0, 0, 1, 1, 2, 4]);
    }

    #[test]
    fn a_wide_window_needs_all_blocks() {
        let wide = KvKind::Sliding { window: 100 };
        assert_eq!((hit(wide, "##.#"), hit(wide, ".##")), (vec![1, 2], vec![]));
    }
}
