//! The block directory in memory that outlives its process, as words of 64 bits.
//!
//! A process may die between any two stores, and each store is whole. So each change is a list of
//! stores whose every beginning leaves a directory that is true. An entry has a state word, which
//! is cleared first and written last. An entry without a state is no entry. The loss of an entry
//! costs some tokens, and a false entry would cost a wrong one.
//!
//! ```text
//! header  MAGIC │ fingerprint ×4 │ blocks, groups │ num_unproven
//! blocks  state │ hash ×4                                    one for each block
//! tails   state │ request │ index, caught_up_at │ blocks     one for each slot
//! ```
//!
//! A state is a tag, and a checksum of the entry and its place. The reader believes nothing: after
//! a word that no writer writes, the whole directory counts as empty.

mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::read::{KeptBlocks, Unusable};
use super::{DirectoryUpdate, KvCacheConfig, Tail, hashes::BlockHash};
use crate::{
    codec::checksum,
    logic::{
        planted::{Bug, planted},
        request::ids::{BlockId, RequestId},
    },
};

/// The first word of a directory. It has the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"PHKVDIR1");
/// Places of the header's words.
const FINGERPRINT: usize = 1;
const SIZE: usize = 5;
const NUM_UNPROVEN: usize = 6;
const HEADER_LEN: usize = 8;
/// Words of a block's entry.
const BLOCK_LEN: usize = 5;
/// Words of a tail's entry before its blocks.
const TAIL_HEAD_LEN: usize = 3;
/// Most tails. A tail that finds no place is computed again after the process has died.
const TAILS_MAX: usize = 4_096;
/// The tags of entries, above a checksum of 32 bits.
const SEALED: u64 = 0x5EA1_ED00_0000_0000;
const TAIL: u64 = 0x7A11_ED00_0000_0000;
/// Largest group whose number fits the state of a sealed block.
const GROUP_MAX: u32 = 0xFF;

/// Number of times in a row that the content is adopted without a finished step. A process that
/// adopts damaged content may die of it.
const UNPROVEN_MAX: u64 = 2;

/// The part of the content that a process adopts from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Adoption {
    /// None, because a process before may still write there. The process has a KV cache of its own.
    Nothing,
    /// The sealed blocks. The last process had another KV cache, so the tails in this one are old.
    Sealed,
    /// All that is known after a crash.
    All,
}

/// One store of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store {
    /// The word's place.
    pub place: usize,
    /// Its new value.
    pub value: u64,
}

/// The places of entries in the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptLayout {
    num_blocks: u32,
    num_groups: u32,
}

impl KeptLayout {
    /// Returns the layout for one KV cache.
    #[must_use]
    pub fn new(config: &KvCacheConfig) -> Self {
        let num_groups = u32::try_from(config.spec.groups.len()).unwrap_or(u32::MAX);
        Self { num_blocks: config.num_blocks, num_groups }
    }

    /// Returns the number of all words.
    #[must_use]
    pub fn num_words(&self) -> usize {
        self.tail_at(self.num_tails())
    }

    fn num_tails(&self) -> usize {
        TAILS_MAX.min(self.num_blocks as usize)
    }

    fn tail_len(&self) -> usize {
        TAIL_HEAD_LEN + (self.num_groups as usize).div_ceil(2)
    }

    fn block_at(&self, block: BlockId) -> usize {
        HEADER_LEN + BLOCK_LEN * block as usize
    }

    fn tail_at(&self, slot: usize) -> usize {
        self.block_at(self.num_blocks) + slot * self.tail_len()
    }

    fn size(&self) -> u64 {
        u64::from(self.num_blocks) | u64::from(self.num_groups) << 32
    }
}

/// Writes the directory of one KV cache.
#[derive(Debug, Clone)]
pub struct KeptWriter {
    layout: KeptLayout,
    /// The place of each tail.
    slots: BTreeMap<RequestId, usize>,
    free: Vec<usize>,
    num_unproven: u64,
}

impl KeptWriter {
    /// Returns the writer of a directory that is empty, and the stores that begin it. All words
    /// must be zero before.
    #[must_use]
    pub fn begin(layout: KeptLayout, fingerprint: &[u8; 32]) -> (Self, Vec<Store>) {
        let free = (0..layout.num_tails()).rev().collect();
        let writer = Self { layout, slots: BTreeMap::new(), free, num_unproven: 0 };
        let mut stores: Vec<Store> = words_of(fingerprint)
            .zip(FINGERPRINT..)
            .map(|(value, place)| Store { place, value })
            .collect();
        stores.push(Store { place: SIZE, value: layout.size() });
        stores.push(Store { place: 0, value: MAGIC });
        (writer, stores)
    }

    /// Returns the writer of a directory that was read, and the stores that count its adoption.
    #[must_use]
    pub fn adopt(layout: KeptLayout, blocks: &KeptBlocks) -> (Self, Vec<Store>) {
        let slots: BTreeMap<_, _> = blocks.slots.clone();
        let mut free: Vec<_> = (0..layout.num_tails()).rev().collect();
        free.retain(|slot| !slots.values().any(|taken| taken == slot));
        let num_unproven = blocks.num_unproven + 1;
        let store = Store { place: NUM_UNPROVEN, value: num_unproven };
        (Self { layout, slots, free, num_unproven }, vec![store])
    }

    /// Returns the stores after a step has finished on the content: it kills no process.
    pub fn proven(&mut self) -> Option<Store> {
        let was_unproven = std::mem::take(&mut self.num_unproven) > 0;
        was_unproven.then_some(Store { place: NUM_UNPROVEN, value: 0 })
    }

    /// Returns the store after which there is no directory.
    #[must_use]
    pub fn end() -> Store {
        Store { place: 0, value: 0 }
    }

    /// Appends the stores of an update.
    pub fn write(&mut self, update: &DirectoryUpdate, stores: &mut Vec<Store>) {
        match update {
            DirectoryUpdate::Sealed { block, hash, group } => {
                self.seal(*block, hash, *group, stores);
            }
            DirectoryUpdate::Evicted { block } => {
                if *block < self.layout.num_blocks && !planted(Bug::KeepEvictedBlock) {
                    stores.push(Store { place: self.layout.block_at(*block), value: 0 });
                }
            }
            DirectoryUpdate::TailAt { request, tail } => self.tail_at(*request, tail, stores),
            DirectoryUpdate::TailGone { request } => self.tail_gone(*request, stores),
        }
    }

    fn seal(&self, block: BlockId, hash: &BlockHash, group: usize, stores: &mut Vec<Store>) {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        // A seal that is not written costs the tokens of its block.
        if block >= self.layout.num_blocks
            || group > GROUP_MAX.min(self.layout.num_groups.saturating_sub(1))
        {
            return;
        }
        let place = self.layout.block_at(block);
        stores.push(Store { place, value: 0 });
        let words = words_of(&hash.0).zip(place + 1..);
        stores.extend(words.map(|(value, place)| Store { place, value }));
        stores.push(Store { place, value: sealed_state(block, hash, group) });
    }

    fn tail_at(&mut self, request: RequestId, tail: &Tail, stores: &mut Vec<Store>) {
        let Some(words) = tail_words(self.layout, request, tail) else {
            return self.tail_gone(request, stores);
        };
        let slot = match self.slots.get(&request) {
            Some(&slot) => slot,
            None => {
                let Some(slot) = self.free.pop() else { return };
                self.slots.insert(request, slot);
                slot
            }
        };
        let place = self.layout.tail_at(slot);
        stores.push(Store { place, value: 0 });
        let state = tail_state(slot, &words);
        let rest = words.into_iter().zip(place + 1..);
        stores.extend(rest.map(|(value, place)| Store { place, value }));
        stores.push(Store { place, value: state });
    }

    fn tail_gone(&mut self, request: RequestId, stores: &mut Vec<Store>) {
        if let Some(slot) = self.slots.remove(&request) {
            self.free.push(slot);
            stores.push(Store { place: self.layout.tail_at(slot), value: 0 });
        }
    }
}

/// Returns 32 bytes as words.
fn words_of(bytes: &[u8; 32]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Returns the state of a sealed block. Its content and group follow from it and the hash.
fn sealed_state(block: BlockId, hash: &BlockHash, group: u32) -> u64 {
    let mut bytes = [0; 40];
    bytes[..32].copy_from_slice(&hash.0);
    bytes[32..36].copy_from_slice(&block.to_le_bytes());
    bytes[36..].copy_from_slice(&group.to_le_bytes());
    SEALED | u64::from(group & GROUP_MAX) << 32 | u64::from(checksum(&bytes))
}

/// Returns the words of a tail after its state, or `None` if they do not hold it.
fn tail_words(layout: KeptLayout, request: RequestId, tail: &Tail) -> Option<Vec<u64>> {
    let index = u64::from(u32::try_from(tail.index).ok()?);
    let caught_up_at = u64::from(u32::try_from(tail.caught_up_at).ok()?);
    let fits = |&block: &BlockId| block < layout.num_blocks;
    let has_all = tail.blocks.len() == layout.num_groups as usize && tail.blocks.iter().all(fits);
    if !has_all {
        return None;
    }
    let mut words = vec![request.0, index | caught_up_at << 32];
    let pairs = tail.blocks.chunks(2);
    words.extend(pairs.map(|pair| {
        let second = pair.get(1).copied().unwrap_or_default();
        u64::from(pair[0]) | u64::from(second) << 32
    }));
    Some(words)
}

fn tail_state(slot: usize, words: &[u64]) -> u64 {
    let mut bytes = Vec::with_capacity(8 * (1 + words.len()));
    bytes.extend((slot as u64).to_le_bytes());
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    TAIL | u64::from(checksum(&bytes))
}
