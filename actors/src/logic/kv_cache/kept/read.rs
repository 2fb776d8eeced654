//! The reader of a directory that an earlier process has left.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{
    BLOCK_LEN, FINGERPRINT, HEADER_LEN, KeptLayout, MAGIC, NUM_UNPROVEN, SEALED, SIZE,
    TAIL_HEAD_LEN, UNPROVEN_MAX, sealed_state, tail_state, words_of,
};
use crate::logic::{
    kv_cache::{
        Tail,
        block_pool::{BlockKey, NULL_BLOCK},
        hashes::BlockHash,
    },
    request::ids::{BlockId, RequestId},
};

/// The content of a directory that an earlier process has left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptBlocks {
    /// The sealed blocks.
    pub sealed: BTreeMap<BlockId, BlockKey>,
    /// The tails.
    pub tails: BTreeMap<RequestId, Tail>,
    /// The places of the tails.
    pub(super) slots: BTreeMap<RequestId, usize>,
    /// Number of adoptions since a step has finished.
    pub(super) num_unproven: u64,
}

/// The reason why a directory cannot be adopted. It then counts as empty, and so does the cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No process has written there yet.
    #[error("no process has written a directory")]
    Fresh,
    /// It has another length.
    #[error("the directory has {found} words, {expected} are needed")]
    Length {
        /// Its number of words.
        found: usize,
        /// The number of words for this KV cache.
        expected: usize,
    },
    /// It begins with something else.
    #[error("the directory begins with {found:#x}, this program reads {MAGIC:#x}")]
    Magic {
        /// Its first word.
        found: u64,
    },
    /// It is of another model, or of other settings.
    #[error("the directory is of another model or of other settings")]
    Fingerprint,
    /// It is of a KV cache of another size.
    #[error(
        "the directory has {} blocks in {} groups, this KV cache {} in {}",
        *.found as u32, .found >> 32, *.expected as u32, .expected >> 32
    )]
    Size {
        /// Blocks in the low half of the word, groups in the high half.
        found: u64,
        /// The same of this KV cache.
        expected: u64,
    },
    /// The processes that adopted it have finished no step.
    #[error("{num_unproven} processes in a row have adopted the content and finished no step")]
    Deadly {
        /// Number of these processes.
        num_unproven: u64,
    },
    /// The entry of a block is damaged.
    #[error("the entry of block {block} is damaged")]
    Block {
        /// The block.
        block: BlockId,
    },
    /// The entry of a tail is damaged.
    #[error("the entry of the tail in slot {slot} is damaged")]
    Tail {
        /// The place of the tail.
        slot: usize,
    },
}

impl KeptBlocks {
    /// Reads the words that an earlier process has left.
    ///
    /// # Errors
    /// [`Unusable`] if any of them is not as a process writes it for this KV cache.
    pub fn read(
        layout: KeptLayout,
        fingerprint: &[u8; 32],
        words: &[u64],
    ) -> Result<Self, Unusable> {
        let expected = layout.num_words();
        if words.len() != expected {
            return Err(Unusable::Length { found: words.len(), expected });
        }
        match words[0] {
            MAGIC => {}
            0 => return Err(Unusable::Fresh),
            found => return Err(Unusable::Magic { found }),
        }
        if !words_of(fingerprint).eq(words[FINGERPRINT..SIZE].iter().copied()) {
            return Err(Unusable::Fingerprint);
        }
        if words[SIZE] != layout.size() {
            return Err(Unusable::Size { found: words[SIZE], expected: layout.size() });
        }
        let num_unproven = words[NUM_UNPROVEN];
        if num_unproven >= UNPROVEN_MAX {
            return Err(Unusable::Deadly { num_unproven });
        }
        let mut kept = Self { num_unproven, ..Self::default() };
        kept.read_blocks(layout, words)?;
        kept.read_tails(layout, words)?;
        Ok(kept)
    }

    fn read_blocks(&mut self, layout: KeptLayout, words: &[u64]) -> Result<(), Unusable> {
        let entries = words[HEADER_LEN..layout.tail_at(0)].chunks_exact(BLOCK_LEN);
        for (entry, block) in entries.zip(0..layout.num_blocks) {
            if entry[0] == 0 {
                continue;
            }
            let hash = hash_of(&entry[1..]);
            let group = ((entry[0] ^ SEALED) >> 32) as u32;
            let is_whole = block != NULL_BLOCK
                && group < layout.num_groups
                && entry[0] == sealed_state(block, &hash, group);
            if !is_whole {
                return Err(Unusable::Block { block });
            }
            self.sealed.insert(block, BlockKey::new(&hash, group as usize));
        }
        Ok(())
    }

    fn read_tails(&mut self, layout: KeptLayout, words: &[u64]) -> Result<(), Unusable> {
        let entries = words[layout.tail_at(0)..].chunks_exact(layout.tail_len());
        for (slot, entry) in entries.enumerate().filter(|(_, entry)| entry[0] != 0) {
            let damaged = Unusable::Tail { slot };
            let rest = &entry[1..];
            if entry[0] != tail_state(slot, rest) {
                return Err(damaged);
            }
            let request = RequestId(rest[0]);
            let [index, caught_up_at] = halves(rest[1]).map(|half| half as usize);
            let blocks = entry[TAIL_HEAD_LEN..].iter().flat_map(|&word| halves(word));
            let blocks: SmallVec<[BlockId; 2]> = blocks.take(layout.num_groups as usize).collect();
            let is_usable = blocks.iter().all(|&block| block < layout.num_blocks);
            let tail = Tail { blocks, index, caught_up_at };
            let is_only_one = self.tails.insert(request, tail).is_none();
            if !is_usable || !is_only_one {
                return Err(damaged);
            }
            self.slots.insert(request, slot);
        }
        Ok(())
    }
}

/// Returns a word's low and high half.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn hash_of(words: &[u64]) -> BlockHash {
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    BlockHash(hash)
}
