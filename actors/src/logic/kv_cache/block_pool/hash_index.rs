//! An index from a block hash to the blocks that hold its content. Several blocks may hold the same
//! content, because two requests can compute it at once and block tables are append-only.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use indexmap::IndexMap;

use crate::logic::{kv_cache::hashes::BlockHash, request::ids::BlockId};

/// The name of a block's content. It is vLLM's key: the hash followed by the big-endian id of the
/// KV cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockKey([u8; 36]);

impl BlockKey {
    /// Returns the key of a block of KV cache group `group`.
    #[must_use]
    pub fn new(hash: &BlockHash, group: usize) -> Self {
        let mut key = [0; 36];
        key[..32].copy_from_slice(&hash.0);
        key[32..].copy_from_slice(&(group as u32).to_be_bytes());
        Self(key)
    }

    /// Returns the hash without the group.
    #[must_use]
    pub fn hash(&self) -> BlockHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(&self.0[..32]);
        BlockHash(hash)
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> usize {
        let [.., a, b, c, d] = self.0;
        u32::from_be_bytes([a, b, c, d]) as usize
    }

    /// Returns the key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 36] {
        &self.0
    }
}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// A hasher that returns the first eight bytes of a key. They suffice, because a key is a SHA-256.
#[derive(Debug, Default, Clone)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| hash.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A chain of blocks with equal content, oldest first.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: BlockId,
    last: BlockId,
}

#[derive(Debug, Clone, Copy, Default)]
struct Siblings {
    prev: Option<BlockId>,
    next: Option<BlockId>,
}

/// The index. Every operation is O(1), even if thousands of blocks hold the same content.
#[derive(Debug, Clone)]
pub(super) struct HashIndex {
    chains: IndexMap<BlockKey, Chain, BuildHasherDefault<FirstBytes>>,
    siblings: Vec<Siblings>,
}

impl HashIndex {
    pub(super) fn new(num_blocks: u32) -> Self {
        let siblings = vec![Siblings::default(); num_blocks as usize];
        Self { chains: IndexMap::default(), siblings }
    }

    /// Returns the block that has held this content longest.
    pub(super) fn get(&self, key: &BlockKey) -> Option<BlockId> {
        self.chains.get(key).map(|chain| chain.first)
    }

    pub(super) fn insert(&mut self, key: BlockKey, block: BlockId) {
        match self.chains.get_mut(&key) {
            None => {
                self.chains.insert(key, Chain { first: block, last: block });
            }
            Some(chain) => {
                self.siblings[block as usize].prev = Some(chain.last);
                self.siblings[chain.last as usize].next = Some(block);
                chain.last = block;
            }
        }
    }

    /// Removes a block, which must have been inserted under `key`.
    pub(super) fn remove(&mut self, key: &BlockKey, block: BlockId) {
        let Siblings { prev, next } = std::mem::take(&mut self.siblings[block as usize]);
        if let Some(prev) = prev {
            self.siblings[prev as usize].next = next;
        }
        if let Some(next) = next {
            self.siblings[next as usize].prev = prev;
        }
        match (prev, next) {
            (None, None) => {
                self.chains.swap_remove(key);
            }
            (None, Some(next)) => self.chains[key].first = next,
            (Some(prev), None) => self.chains[key].last = prev,
            (Some(_), Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_ends_with_the_big_endian_group() {
        let hash = BlockHash([7; 32]);
        let key = BlockKey::new(&hash, 258);
        assert_eq!(key.as_bytes()[32..], [0, 0, 1, 2]);
        assert_eq!((key.hash(), key.group()), (hash, 258));
    }

    #[test]
    fn the_oldest_of_equal_blocks_is_found() {
        let key = BlockKey::new(&BlockHash([1; 32]), 0);
        let mut index = HashIndex::new(8);
        for block in [5, 3, 7, 2] {
            index.insert(key, block);
        }
        assert_eq!(index.get(&key), Some(5));
        index.remove(&key, 3);
        index.remove(&key, 5);
        assert_eq!(index.get(&key), Some(7));
        index.remove(&key, 2);
        index.insert(key, 4);
        index.remove(&key, 7);
        assert_eq!(index.get(&key), Some(4));
        index.remove(&key, 4);
        assert_eq!(index.get(&key), None);
    }
}
