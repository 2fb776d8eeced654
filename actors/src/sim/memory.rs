//! The simulator's KV memory: every slot remembers which tokens it was computed from, so that
//! whoever reads it finds out whether it holds what it should.

use super::model::Digest;
use crate::logic::request::ids::BlockId;

/// What is wrong with a slot that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It was never computed, or a crash left it half written.
    Torn,
    /// It was computed from other tokens.
    Foreign,
    /// It holds garbage of an earlier step.
    Garbage,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// 0: torn.
    digest: Digest,
    /// The execution whose numbers were no numbers; 0: they were.
    garbage_of: u64,
}

/// All blocks of one device.
#[derive(Debug)]
pub struct Memory {
    slots: Vec<Slot>,
    block_size: usize,
}

impl Memory {
    /// Blocks that hold nothing.
    #[must_use]
    pub fn new(num_blocks: usize, block_size: usize) -> Self {
        Self { slots: vec![Slot::default(); num_blocks * block_size], block_size }
    }

    /// Tokens a block holds.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    fn slot(&mut self, table: &[BlockId], position: usize) -> Option<&mut Slot> {
        let block = *table.get(position / self.block_size)? as usize;
        // Nobody owns the null block.
        let is_usable = block != 0;
        let index = block * self.block_size + position % self.block_size;
        self.slots.get_mut(index).filter(|_| is_usable)
    }

    /// Computes a position. False if the table names no slot for it.
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

    /// Reads what was computed for `position`; `digest` is what it should be. Says whether it is
    /// garbage, of execution `garbage_since` or a later one.
    ///
    /// # Errors
    /// What it is instead.
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
