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
    /// The slot holds garbage of an earlier step.
    Garbage,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Digest of the tokens; 0 means torn.
    digest: Digest,
    /// Number of the execution that wrote garbage; 0 means no garbage.
    garbage_of: u64,
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
        garbage_of: u64,
    ) -> bool {
        let slot = self.slot(table, position);
        slot.map(|slot| *slot = Slot { digest, garbage_of }).is_some()
    }

    /// Reads the slot of `position`, which should hold `digest`. Returns whether it is garbage,
    /// written by execution `garbage_since` or a later one.
    ///
    /// # Errors
    /// The fault of the slot.
    pub fn read(
        &mut self,
        table: &[BlockId],
        position: usize,
        digest: Digest,
        garbage_since: u64,
    ) -> Result<bool, Wrong> {
        match self.slot(table, position) {
            Some(slot) if slot.digest == 0 => Err(Wrong::Torn),
            Some(slot) if slot.garbage_of != 0 && slot.garbage_of >= garbage_since => Ok(true),
            Some(slot) if slot.garbage_of != 0 => Err(Wrong::Garbage),
            Some(slot) if slot.digest == digest => Ok(false),
            Some(_) => Err(Wrong::Foreign),
            None => Err(Wrong::Torn),
        }
    }
}
