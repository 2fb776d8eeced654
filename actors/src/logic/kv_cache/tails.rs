//! The tail: the blocks that a request is filling, one of each group. They survive a crash as full
//! blocks do, but only their own request can use them again.
//!
//! A request that has *caught up* computes one token in each step. Once a step's result is
//! committed, all of its tokens except the last are computed. After a crash, the ledger therefore
//! shows how many tokens of the last blocks are valid. This number need not be recorded at each
//! step. The directory receives an update when the request catches up, when its table grows, and
//! when it frees its blocks. Steps in flight may have written further tokens to the blocks. They
//! lie behind the valid ones.
//!
//! In the new epoch a tail is *kept*: its blocks are free and in no index, and blocks that no live
//! request uses are allocated before them. Its request gets them at its first lookup, or never.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{BlockIds, directory::DirectoryUpdate};
use crate::logic::{
    planted::{Bug, planted},
    request::ids::{BlockId, RequestId},
};

/// A request's last blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The block of each group.
    pub blocks: SmallVec<[BlockId; 2]>,
    /// Number of full blocks before each of them.
    pub index: usize,
    /// Number of tokens that the request had when it caught up. Once more tokens are committed, all
    /// of them except the last are computed.
    pub caught_up_at: usize,
}

impl Tail {
    /// Returns whether the tail is the last block of each group's table.
    pub(super) fn is_end_of(&self, table: &BlockIds) -> bool {
        let last_blocks = table.lists().iter().map(|blocks| blocks.last());
        self.index + 1 == table.group(0).len() && last_blocks.eq(self.blocks.iter().map(Some))
    }

    /// Returns how many of a request's first `num_computed` tokens lie in its tail. Returns `None`
    /// if this number is not between 1 and `block_size`, or if `num_hits` is not the number of
    /// blocks before the tail.
    pub(super) fn num_tokens(
        &self,
        num_hits: usize,
        num_computed: usize,
        block_size: usize,
    ) -> Option<usize> {
        let num_tokens = num_computed.checked_sub(self.index * block_size)?;
        let fits = (1..=block_size).contains(&num_tokens);
        (fits && self.index == num_hits).then_some(num_tokens)
    }
}

/// The tails that the last epoch left, and the updates that the directory has not received yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Tails {
    kept: BTreeMap<RequestId, Tail>,
    owners: BTreeMap<BlockId, RequestId>,
    updates: Vec<DirectoryUpdate>,
}

impl Tails {
    /// Keeps a tail for its request. Returns `false`, without effect, if one of its blocks is kept
    /// for another request.
    pub(super) fn keep(&mut self, request: RequestId, tail: Tail) -> bool {
        let is_new = !tail.blocks.iter().any(|block| self.owners.contains_key(block));
        if is_new {
            self.owners.extend(tail.blocks.iter().map(|&block| (block, request)));
            self.kept.insert(request, tail);
        }
        is_new
    }

    /// Returns the tail that is kept for a request.
    pub(super) fn kept(&self, request: RequestId) -> Option<Tail> {
        if planted(Bug::SwapTails) {
            return self.kept.values().next_back().cloned();
        }
        self.kept.get(&request).cloned()
    }

    /// Returns all tails that are kept, in order of requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &Tail)> {
        self.kept.iter().map(|(&request, tail)| (request, tail))
    }

    /// Stops keeping a request's tail, because it is the end of the request's table again.
    pub(super) fn adopt(&mut self, request: RequestId) {
        self.forget(request);
    }

    fn forget(&mut self, request: RequestId) -> Option<Tail> {
        let tail = self.kept.remove(&request)?;
        for block in &tail.blocks {
            self.owners.remove(block);
        }
        Some(tail)
    }

    /// Records the new tail at the end of the request's table.
    pub(super) fn moved(&mut self, request: RequestId, tail: Tail) {
        self.updates.push(DirectoryUpdate::TailAt { request, tail });
    }

    /// Records that the request has freed its table or its kept tail.
    pub(super) fn gone(&mut self, request: RequestId) {
        if !planted(Bug::ForgetFreedTail) {
            self.updates.push(DirectoryUpdate::TailGone { request });
        }
    }

    /// Drops the tail that is kept for a request, if there is one.
    pub(super) fn drop_kept(&mut self, request: RequestId) {
        if self.forget(request).is_some() {
            self.gone(request);
        }
    }

    /// Records that a block is allocated for other content: a tail kept there is dropped.
    pub(super) fn handed_out(&mut self, block: BlockId) {
        if let Some(&request) = self.owners.get(&block)
            && !planted(Bug::KeepHandedOutTail)
        {
            self.drop_kept(request);
        }
    }

    /// Drops all tails that are kept.
    pub(super) fn clear(&mut self) {
        self.owners.clear();
        for (request, _) in std::mem::take(&mut self.kept) {
            self.gone(request);
        }
    }

    pub(super) fn append_updates(&mut self, updates: &mut Vec<DirectoryUpdate>) {
        updates.append(&mut self.updates);
    }
}
