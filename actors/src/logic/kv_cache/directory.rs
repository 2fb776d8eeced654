//! The part of the KV cache's content that is known after any crash. The vault keeps this
//! directory. The KV cache manager of the current epoch writes it, and the manager of the next
//! epoch reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{kept::KeptBlocks, tails::Tail};
use crate::logic::{
    kv_cache::{block_pool::BlockKey, hashes::BlockHash},
    planted::{Bug, planted},
    request::ids::{BlockId, Epoch, RequestId},
};

/// A change of the block directory. The directory must receive the updates of a plan, in order,
/// before the answer to the plan is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectoryUpdate {
    /// The block holds this content.
    Sealed {
        /// The block.
        block: BlockId,
        /// The hash that names its content.
        hash: BlockHash,
        /// The group whose layers have the content.
        group: usize,
    },
    /// The block will soon hold other content.
    Evicted {
        /// The block.
        block: BlockId,
    },
    /// A request's tail has a new place.
    TailAt {
        /// The request.
        request: RequestId,
        /// The new tail.
        tail: Tail,
    },
    /// The request no longer has a tail.
    TailGone {
        /// The request.
        request: RequestId,
    },
}

/// The sealed blocks and the tails of one KV cache.
#[derive(Debug, Clone, Default)]
pub struct BlockDirectory {
    /// Only the KV cache manager of this epoch may write.
    epoch: Epoch,
    sealed: BTreeMap<BlockId, BlockKey>,
    tails: BTreeMap<RequestId, Tail>,
}

impl BlockDirectory {
    /// Returns the directory of a cache whose content an earlier process has left.
    #[must_use]
    pub fn adopted(kept: KeptBlocks) -> Self {
        let KeptBlocks { sealed, tails, .. } = kept;
        Self { epoch: Epoch::default(), sealed, tails }
    }

    /// Applies updates. Updates from a KV cache manager of another epoch change nothing.
    pub fn update(&mut self, epoch: Epoch, updates: Vec<DirectoryUpdate>) {
        if epoch != self.epoch {
            return;
        }
        for update in updates {
            match update {
                DirectoryUpdate::Sealed { block, hash, group } => {
                    self.sealed.insert(block, BlockKey::new(&hash, group));
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

    /// Begins an epoch: from now on only the KV cache manager of `epoch` may write. `num_tokens`
    /// returns a live request's number of prompt and output tokens. The directory forgets the tails
    /// of ended requests, and of requests that had not caught up yet. Returns these requests.
    pub fn begin_epoch(
        &mut self,
        epoch: Epoch,
        num_tokens: impl Fn(RequestId) -> Option<usize>,
    ) -> Vec<RequestId> {
        self.epoch = self.epoch.max(epoch);
        let forgotten = self.tails.extract_if(.., |&request, tail| {
            let is_committed = |count| count > tail.caught_up_at || planted(Bug::TrustOpenTail);
            !num_tokens(request).is_some_and(is_committed)
        });
        forgotten.map(|(request, _)| request).collect()
    }

    /// Returns whether only the KV cache manager of `epoch` has written since the epoch began. The
    /// content that it wrote is then still there.
    #[must_use]
    pub fn is_written_by(&self, epoch: Epoch) -> bool {
        self.epoch == epoch
    }

    /// Forgets all content, regardless of what the manager of this epoch assumes. Returns the last
    /// epoch whose plans relied on the content.
    pub fn lose_content(&mut self) -> Epoch {
        let last = self.epoch;
        if !planted(Bug::KeepLostContent) {
            self.sealed.clear();
            self.tails.clear();
            self.epoch = last.next();
        }
        last
    }

    /// Returns whether it names no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sealed.is_empty() && self.tails.is_empty()
    }

    /// Returns the blocks whose content is complete, in order of blocks.
    pub fn sealed(&self) -> impl Iterator<Item = (BlockId, BlockKey)> {
        self.sealed.iter().map(|(&block, &key)| (block, key))
    }

    /// Returns the tails of requests, in order of requests.
    pub fn tails(&self) -> impl Iterator<Item = (RequestId, Tail)> {
        self.tails.iter().map(|(&request, tail)| (request, tail.clone()))
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
        let tail =
            |block| Tail { blocks: [block].into_iter().collect(), index: 0, caught_up_at: 3 };
        let at = |request, block| DirectoryUpdate::TailAt { request, tail: tail(block) };
        let sealed = DirectoryUpdate::Sealed { block: 9, hash: BlockHash([1; 32]), group: 0 };
        directory.update(Epoch(1), vec![at(ALICE, 4), at(BOB, 5), at(ALICE, 6), sealed]);
        directory
    }

    fn tails(directory: &BlockDirectory) -> Vec<(RequestId, BlockId)> {
        directory.tails().map(|(request, tail)| (request, tail.blocks[0])).collect()
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
    fn uncommitted_tokens_do_not_count() {
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
        let tail = Tail { blocks: [4].into_iter().collect(), index: 0, caught_up_at: 3 };
        directory.update(Epoch(1), vec![DirectoryUpdate::TailAt { request: BOB, tail }]);
        assert_eq!(tails(&directory), [], "later updates of its manager concern the old cache");
    }
}
