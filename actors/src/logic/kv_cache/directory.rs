//! What is known of the KV cache's content, whatever crashes: kept by the vault, written by the KV
//! cache manager of the current epoch, read by the next one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tails::Tail;
use crate::{
    fault::{Bug, planted},
    logic::{
        block_hash::BlockHash,
        ids::{BlockId, Epoch, RequestId},
    },
};

/// A change of the block directory. Updates must reach it, in order, before the answer to the plan
/// that caused them is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectoryUpdate {
    /// The block holds this content.
    Sealed {
        /// The block.
        block: BlockId,
        /// Names its content.
        hash: BlockHash,
    },
    /// The block is about to hold something else.
    Evicted {
        /// The block.
        block: BlockId,
    },
    /// A request's tail is here now.
    TailAt {
        /// Whose.
        request: RequestId,
        /// Where.
        tail: Tail,
    },
    /// The request has no tail any more.
    TailGone {
        /// Whose.
        request: RequestId,
    },
}

/// The sealed blocks and the tails of one KV cache.
#[derive(Debug, Clone, Default)]
pub struct BlockDirectory {
    /// Only the KV cache manager of this epoch may write.
    epoch: Epoch,
    sealed: BTreeMap<BlockId, BlockHash>,
    tails: BTreeMap<RequestId, Tail>,
}

impl BlockDirectory {
    /// Keeps it true. Whoever is not the KV cache manager of the current epoch changes nothing.
    pub fn update(&mut self, epoch: Epoch, updates: Vec<DirectoryUpdate>) {
        if epoch != self.epoch {
            return;
        }
        for update in updates {
            match update {
                DirectoryUpdate::Sealed { block, hash } => {
                    self.sealed.insert(block, hash);
                }
                DirectoryUpdate::Evicted { block } => {
                    self.sealed.remove(&block);
                }
                DirectoryUpdate::TailAt { request, tail } => {
                    self.tails.insert(request, tail);
                }
                DirectoryUpdate::TailGone { request } => {
                    self.tails.remove(&request);
                }
            }
        }
    }

    /// From now on the KV cache manager of `epoch` alone writes. `num_tokens`: of prompt and output,
    /// if a request lives on. Tails of those that ended are forgotten, and of those that only were
    /// about to catch up.
    pub fn begin_epoch(&mut self, epoch: Epoch, num_tokens: impl Fn(RequestId) -> Option<usize>) {
        self.epoch = self.epoch.max(epoch);
        self.tails.retain(|&request, tail| {
            let is_committed = |count| count > tail.caught_up_at || planted(Bug::TrustOpenTail);
            num_tokens(request).is_some_and(is_committed)
        });
    }

    /// Whether the KV cache manager of `epoch` alone has written since that began, and what it wrote
    /// is still there.
    #[must_use]
    pub fn is_written_by(&self, epoch: Epoch) -> bool {
        self.epoch == epoch
    }

    /// Nothing is there any more, whatever the manager of this epoch thinks: the last that counts on
    /// what was there.
    pub fn lose_content(&mut self) -> Epoch {
        let last = self.epoch;
        if !planted(Bug::KeepLostContent) {
            self.sealed.clear();
            self.tails.clear();
            self.epoch = last.next();
        }
        last
    }

    /// Blocks whose content is complete, by block.
    pub fn sealed(&self) -> impl Iterator<Item = (BlockId, BlockHash)> {
        self.sealed.iter().map(|(&block, &hash)| (block, hash))
    }

    /// Where requests have their tails, by request.
    pub fn tails(&self) -> impl Iterator<Item = (RequestId, Tail)> {
        self.tails.iter().map(|(&request, &tail)| (request, tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: RequestId = RequestId(1);
    const BOB: RequestId = RequestId(2);

    fn with_tails() -> BlockDirectory {
        let mut directory = BlockDirectory::default();
        directory.begin_epoch(Epoch(1), |_| Some(9));
        let tail = |block| Tail { block, index: 0, caught_up_at: 3 };
        let at = |request, block| DirectoryUpdate::TailAt { request, tail: tail(block) };
        let sealed = DirectoryUpdate::Sealed { block: 9, hash: BlockHash([1; 32]) };
        directory.update(Epoch(1), vec![at(ALICE, 4), at(BOB, 5), at(ALICE, 6), sealed]);
        directory
    }

    fn tails(directory: &BlockDirectory) -> Vec<(RequestId, BlockId)> {
        directory.tails().map(|(request, tail)| (request, tail.block)).collect()
    }

    #[test]
    fn a_request_has_one_tail_until_it_ends() {
        let mut directory = with_tails();
        assert_eq!(tails(&directory), [(ALICE, 6), (BOB, 5)]);
        directory.update(Epoch(1), vec![DirectoryUpdate::TailGone { request: BOB }]);
        assert_eq!(tails(&directory), [(ALICE, 6)]);
        directory.begin_epoch(Epoch(2), |request| (request != ALICE).then_some(9));
        assert_eq!(tails(&directory), []);
        assert_eq!(directory.sealed().count(), 1);
    }

    #[test]
    fn what_was_not_committed_does_not_count() {
        for (num_tokens, expected) in [(3, 0), (4, 2)] {
            let mut directory = with_tails();
            directory.begin_epoch(Epoch(2), |_| Some(num_tokens));
            assert_eq!(directory.tails().count(), expected, "{num_tokens} tokens");
        }
    }

    #[test]
    fn a_manager_of_the_past_writes_nothing() {
        let mut directory = with_tails();
        directory.begin_epoch(Epoch(2), |_| Some(9));
        directory.update(Epoch(1), vec![DirectoryUpdate::TailGone { request: BOB }]);
        assert_eq!(tails(&directory), [(ALICE, 6), (BOB, 5)]);
    }

    #[test]
    fn lost_content_takes_tails_with_it() {
        let mut directory = with_tails();
        assert_eq!(directory.lose_content(), Epoch(1));
        assert_eq!((directory.sealed().count(), directory.tails().count()), (0, 0));
        let tail = Tail { block: 4, index: 0, caught_up_at: 3 };
        directory.update(Epoch(1), vec![DirectoryUpdate::TailAt { request: BOB, tail }]);
        assert_eq!(tails(&directory), [], "what its manager still says is of the old cache");
    }
}
