//! The block that a request is filling: it survives a crash as full blocks do, but for this request
//! alone.
//!
//! A request that has *caught up* computes one token a step, so all of its tokens but the last are
//! computed once a step's result is committed. How much of its last block counts after a crash is
//! therefore known from the ledger, and need not be written down step by step: the directory hears
//! of a tail when the request catches up, when its table grows, and when it lets go of its blocks.
//! Whatever the steps in flight left behind lies beyond what counts.
//!
//! In the new epoch a tail is *kept*: its block is free, handed out after all others, and in no
//! index. Its request takes it back with its first lookup, or never.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::directory::DirectoryUpdate;
use crate::{
    fault::{Bug, planted},
    logic::ids::{BlockId, RequestId},
};

/// A request's last block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The block.
    pub block: BlockId,
    /// Full blocks before it.
    pub index: usize,
    /// Tokens that the request had when it caught up. Once more are committed, all but the last of
    /// them are computed.
    pub caught_up_at: usize,
}

impl Tail {
    /// How many of a request's first `num_computed` tokens lie in its tail, if `num_hits` blocks
    /// before it are there.
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

/// The tails that the last epoch left, and what the directory has not been told yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Tails {
    kept: BTreeMap<RequestId, Tail>,
    owners: BTreeMap<BlockId, RequestId>,
    updates: Vec<DirectoryUpdate>,
}

impl Tails {
    /// Keeps a tail for its request. False if its block is kept for another.
    pub(super) fn keep(&mut self, request: RequestId, tail: Tail) -> bool {
        let is_new = !self.owners.contains_key(&tail.block);
        if is_new {
            self.owners.insert(tail.block, request);
            self.kept.insert(request, tail);
        }
        is_new
    }

    /// The tail kept for a request.
    pub(super) fn kept(&self, request: RequestId) -> Option<Tail> {
        if planted(Bug::SwapTails) {
            return self.kept.values().next_back().copied();
        }
        self.kept.get(&request).copied()
    }

    /// All that are kept, by request.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, Tail)> {
        self.kept.iter().map(|(&request, &tail)| (request, tail))
    }

    /// The tail kept for a request is the end of its table again.
    pub(super) fn adopt(&mut self, request: RequestId) {
        if let Some(tail) = self.kept.remove(&request) {
            self.owners.remove(&tail.block);
        }
    }

    /// The request's table ends here now.
    pub(super) fn moved(&mut self, request: RequestId, tail: Tail) {
        self.updates.push(DirectoryUpdate::TailAt { request, tail });
    }

    /// The request lets go of its table.
    pub(super) fn gone(&mut self, request: RequestId) {
        if !planted(Bug::ForgetFreedTail) {
            self.updates.push(DirectoryUpdate::TailGone { request });
        }
    }

    /// What may be kept for a request is not wanted.
    pub(super) fn drop_kept(&mut self, request: RequestId) {
        if let Some(tail) = self.kept.remove(&request) {
            self.owners.remove(&tail.block);
            self.gone(request);
        }
    }

    /// A block is handed out for something else.
    pub(super) fn handed_out(&mut self, block: BlockId) {
        if let Some(&request) = self.owners.get(&block)
            && !planted(Bug::KeepHandedOutTail)
        {
            self.drop_kept(request);
        }
    }

    /// Nothing is kept any more.
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
