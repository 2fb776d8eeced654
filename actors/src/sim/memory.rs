//! The simulator's KV memory. Every slot remembers the tokens that it was computed from, so that a
//! reader detects wrong content.

use super::model::Digest;
use crate::logic::request::ids::BlockId;

/// The fault of a slot that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The slot was never computed, or a crash left it half written.
    Torn,
    /// The slot was computed from other tokens.
    Foreign,
}

/// The number of a request's life in an executor, from 1. A request that begins again has another.
pub type Life = u64;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Digest of the tokens; 0 means torn.
    digest: Digest,
    /// The life that wrote garbage, if it is garbage.
    garbage_of: Option<Life>,
}

/// All blocks of one device.
#[derive(Debug)]
pub struct Memory {
    slots: Vec<Slot>,
    block_size: usize,
}

impl Memory {
    /// Returns a memory with empty blocks.
    #[must_use]
    pub fn new(num_blocks: usize, block_size: usize) -> Self {
        Self { slots: vec![Slot::default(); num_blocks * block_size], block_size }
    }

    /// Returns the number of tokens in a block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    fn slot(&mut self, table: &[BlockId], position: usize) -> Option<&mut Slot> {
        let block = *table.get(position / self.block_size)? as usize;
        // No request owns the null block.
        let is_usable = block != 0;
        let index = block * self.block_size + position % self.block_size;
        self.slots.get_mut(index).filter(|_| is_usable)
    }

    /// Writes a position. Returns false if the table has no slot for it.
    pub fn write(
        &mut self,
        table: &[BlockId],
        position: usize,
        digest: Digest,
        garbage_of: Option<Life>,
    ) -> bool {
        let slot = self.slot(table, position);
        slot.map(|slot| *slot = Slot { digest, garbage_of }).is_some()
    }

    /// Reads the slot of `position`, which should hold `digest`. If it is garbage, returns the life
    /// that wrote it.
    ///
    /// # Errors
    /// The fault of the slot.
    pub fn read(
        &mut self,
        table: &[BlockId],
        position: usize,
        digest: Digest,
    ) -> Result<Option<Life>, Wrong> {
        match self.slot(table, position) {
            Some(slot) if slot.digest == 0 => Err(Wrong::Torn),
            Some(slot) if slot.digest == digest => Ok(slot.garbage_of),
            Some(_) => Err(Wrong::Foreign),
            None => Err(Wrong::Torn),
        }
    }
}
