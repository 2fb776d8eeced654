//! The blocks whose content agrees with their hash, even after a crash.
//!
//! A block can be hit as soon as a step that fills it is planned, because steps run in order. It is
//! *sealed* only when that step is known to be computed. Only sealed blocks survive a crash.

use std::collections::VecDeque;

use super::directory::DirectoryUpdate;
use crate::logic::{
    kv_cache::block_pool::BlockKey,
    planted::{Bug, planted},
    request::ids::{BlockId, Step},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The block has no hash.
    Open,
    /// The block has a hash. It is full when this step is computed, but the step may still fail.
    Filled(Step),
    Sealed,
}

/// The state of every block, and the updates that the directory has not received yet.
#[derive(Debug, Clone)]
pub(super) struct Seals {
    contents: Vec<Content>,
    /// Blocks to seal, in order of steps. An entry counts only while its step is the one in the
    /// block's `Filled`.
    pending: VecDeque<(Step, BlockId)>,
    updates: Vec<DirectoryUpdate>,
}

impl Seals {
    pub(super) fn new(num_blocks: u32) -> Self {
        let contents = vec![Content::Open; num_blocks as usize];
        Self { contents, pending: VecDeque::new(), updates: Vec::new() }
    }

    /// Marks `block` as sealed, because the directory had it when the manager was created.
    pub(super) fn restore(&mut self, block: BlockId) {
        self.contents[block as usize] = Content::Sealed;
    }

    /// Seals `block`: its content agrees with its key.
    pub(super) fn seal(&mut self, block: BlockId, key: BlockKey) {
        self.contents[block as usize] = Content::Sealed;
        let (hash, group) = (key.hash(), key.group());
        self.updates.push(DirectoryUpdate::Sealed { block, hash, group });
    }

    pub(super) fn fill(&mut self, block: BlockId, step: Step) {
        self.contents[block as usize] = Content::Filled(step);
        self.pending.push_back((step, block));
    }

    pub(super) fn is_filled_by(&self, block: BlockId, step: Step) -> bool {
        self.contents[block as usize] == Content::Filled(step)
    }

    /// Returns whether the step that fills `block` may still fail.
    pub(super) fn is_pending(&self, block: BlockId) -> bool {
        matches!(self.contents[block as usize], Content::Filled(_))
    }

    /// Seals the blocks of all steps up to `step`, because these steps are computed.
    pub(super) fn complete(&mut self, step: Step, key_of: impl Fn(BlockId) -> Option<BlockKey>) {
        while let Some((filled_by, block)) = self.pending.pop_front_if(|entry| entry.0 <= step) {
            if let Some(key) = key_of(block).filter(|_| self.is_filled_by(block, filled_by)) {
                self.seal(block, key);
            }
        }
    }

    /// Records that `block` lost its hash.
    pub(super) fn evicted(&mut self, block: BlockId) {
        let before = std::mem::replace(&mut self.contents[block as usize], Content::Open);
        if before == Content::Sealed && !planted(Bug::ForgetEviction) {
            self.updates.push(DirectoryUpdate::Evicted { block });
        }
    }

    /// Removes and returns the blocks that wait for their step. Whether the step was computed will
    /// remain unknown.
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
