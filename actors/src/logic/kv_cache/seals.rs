//! Which blocks hold what their hash says, whatever crashes.
//!
//! A block can be hit as soon as a step that fills it is planned, because steps run in order. It
//! is *sealed* only once that step is known to be computed; only sealed blocks survive a crash.

use std::collections::VecDeque;

use super::directory::DirectoryUpdate;
use crate::{
    fault::{Bug, planted},
    logic::{
        block_hash::BlockHash,
        ids::{BlockId, Step},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// No hash.
    Open,
    /// Has a hash and is full once this step is computed, which may still fail.
    Filled(Step),
    Sealed,
}

/// The state of every block, and what the directory has not been told yet.
#[derive(Debug, Clone)]
pub(super) struct Seals {
    contents: Vec<Content>,
    /// Blocks to seal, in order of steps. An entry counts only while the block is `Filled` by it.
    pending: VecDeque<(Step, BlockId)>,
    updates: Vec<DirectoryUpdate>,
}

impl Seals {
    pub(super) fn new(num_blocks: u32) -> Self {
        let contents = vec![Content::Open; num_blocks as usize];
        Self { contents, pending: VecDeque::new(), updates: Vec::new() }
    }

    /// `block` was in the directory when the manager was made.
    pub(super) fn restore(&mut self, block: BlockId) {
        self.contents[block as usize] = Content::Sealed;
    }

    /// `block` holds what its hash says.
    pub(super) fn seal(&mut self, block: BlockId, hash: BlockHash) {
        self.contents[block as usize] = Content::Sealed;
        self.updates.push(DirectoryUpdate::Sealed { block, hash });
    }

    pub(super) fn fill(&mut self, block: BlockId, step: Step) {
        self.contents[block as usize] = Content::Filled(step);
        self.pending.push_back((step, block));
    }

    pub(super) fn is_filled_by(&self, block: BlockId, step: Step) -> bool {
        self.contents[block as usize] == Content::Filled(step)
    }

    /// All steps up to `step` are computed.
    pub(super) fn complete(&mut self, step: Step, hash_of: impl Fn(BlockId) -> Option<BlockHash>) {
        while let Some((filled_by, block)) = self.pending.pop_front_if(|entry| entry.0 <= step) {
            if let Some(hash) = hash_of(block).filter(|_| self.is_filled_by(block, filled_by)) {
                self.seal(block, hash);
            }
        }
    }

    /// `block` lost its hash.
    pub(super) fn evicted(&mut self, block: BlockId) {
        let before = std::mem::replace(&mut self.contents[block as usize], Content::Open);
        if before == Content::Sealed && !planted(Bug::ForgetEviction) {
            self.updates.push(DirectoryUpdate::Evicted { block });
        }
    }

    /// The blocks that wait for their step: whether it was computed will never be known.
    pub(super) fn abandon_pending(&mut self) -> Vec<BlockId> {
        let pending = std::mem::take(&mut self.pending).into_iter();
        let unsealed = pending.filter(|&(step, block)| self.is_filled_by(block, step));
        let mut blocks: Vec<BlockId> = unsealed.map(|(_, block)| block).collect();
        blocks.dedup();
        blocks
    }

    pub(super) fn take_updates(&mut self) -> Vec<DirectoryUpdate> {
        std::mem::take(&mut self.updates)
    }
}
