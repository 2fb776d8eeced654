//! Demand: how many blocks a request's tokens take. The scheduler asks in tokens, and only this
//! module and the KV cache manager know the size of a block.

use std::ops::Range;

use smallvec::SmallVec;

use super::{KvCacheConfig, KvKind};
use crate::{
    error::RequestError,
    logic::{
        kv_cache::allocation::AllocateOp,
        planted::{Bug, planted},
    },
};

/// The block arithmetic of one KV cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    block_size: usize,
    groups: SmallVec<[GroupDemand; 2]>,
    num_blocks: u32,
}

/// The block arithmetic of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupDemand {
    pub(super) kind: KvKind,
    /// Largest number of blocks that one request holds at once, whatever its length.
    most_blocks: usize,
}

/// Blocks of a request beyond those for the tokens that its steps read and write: its first and its
/// last token may be anywhere in their blocks, and the last full block may be unregistered.
const EDGE_BLOCKS: usize = 3;

/// The blocks that the KV cache manager holds for one request, as the scheduler counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    num_blocks: usize,
    /// Number of tokens that the request's block table has room for.
    num_room_tokens: usize,
    /// Number of full blocks, from the first one, that other requests can hit.
    num_registered: usize,
    /// Whether the manager has a tail for the request, or may have one that the last epoch left.
    has_tail: bool,
}

/// The changes that an allocation makes to what a request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    num_blocks: usize,
    num_room_tokens: usize,
    num_registered: usize,
    has_tail: bool,
    fills: bool,
}

impl Demand {
    /// Returns the arithmetic of a KV cache.
    #[must_use]
    pub fn new(config: &KvCacheConfig) -> Self {
        let KvCacheConfig { num_blocks, num_step_tokens, ref spec } = *config;
        let block_size = spec.block_size;
        let groups = spec.groups.iter().map(|group| {
            // Steps read the tokens of a window, and write their own.
            let num_tokens =
                group.kind.num_read_max().map(|read| read.saturating_add(num_step_tokens));
            let most_blocks = num_tokens.map_or(usize::MAX, |n| n.div_ceil(block_size));
            GroupDemand { kind: group.kind, most_blocks: most_blocks.saturating_add(EDGE_BLOCKS) }
        });
        Self { block_size, groups: groups.collect(), num_blocks }
    }

    /// Returns the number of blocks for tokens: all except the null block.
    #[must_use]
    pub fn num_usable_blocks(&self) -> usize {
        self.num_blocks.saturating_sub(1) as usize
    }

    /// Returns the number of blocks that make up `share` of the cache, rounded down.
    #[must_use]
    pub fn blocks_in(&self, share: f64) -> usize {
        (share * f64::from(self.num_blocks)) as usize
    }

    /// Returns the largest number of tokens of one request that the whole cache has room for.
    /// `None`: any number.
    #[must_use]
    pub fn num_tokens_max(&self) -> Option<usize> {
        let usable = self.num_usable_blocks();
        let fits = |num_blocks: usize| self.num_blocks_max(num_blocks) <= usable;
        if fits(usize::MAX) {
            return None;
        }
        // One block more than there are never fits, or no group would have reached its most.
        let (mut most, mut too_many) = (0, usable.saturating_add(1));
        while most + 1 < too_many {
            let middle = most.midpoint(too_many);
            if fits(middle) { most = middle } else { too_many = middle }
        }
        Some(most * self.block_size)
    }

    /// Returns whether the whole cache has room for so many tokens of one request.
    #[must_use]
    pub fn fits(&self, num_tokens: usize) -> bool {
        self.num_blocks_for(num_tokens) <= self.num_usable_blocks()
    }

    /// Returns the number of a request's first `num_computed` tokens from which it could go on
    /// without its blocks: with prefix caching, those in registered blocks. `num_hit_tokens` of
    /// them were found by the lookup just before.
    #[must_use]
    pub fn settled(&self, held: &Held, num_hit_tokens: usize, num_computed: usize) -> usize {
        let num_registered = held.num_registered + self.hit_blocks(num_hit_tokens);
        num_computed.min(num_registered * self.block_size)
    }

    /// Checks whether a prompt of this length can ever run.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if the prompt and its first output token do not fit the whole
    /// cache.
    pub fn check_servable(&self, prompt_len: usize) -> Result<(), RequestError> {
        self.check_fits(prompt_len + 1)
    }

    /// Checks whether a request of so many tokens, its whole prompt and output, can ever run.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if its tokens do not fit the whole cache.
    pub fn check_fits(&self, num_tokens: usize) -> Result<(), RequestError> {
        if self.fits(num_tokens) {
            return Ok(());
        }
        Err(RequestError::Unservable {
            needed_blocks: self.num_blocks_for(num_tokens),
            total_blocks: self.num_usable_blocks(),
            block_size: self.block_size,
        })
    }

    /// Returns whether a request's last, partly full blocks survive a crash as a tail. They do not
    /// if a group has a state, which every step writes over.
    #[must_use]
    pub fn has_tails(&self) -> bool {
        self.keeps_tokens_apart() || planted(Bug::KeepTailOfState)
    }

    /// Returns whether the content of each token lies apart from that of other tokens. Otherwise a
    /// wrong token could not be taken back.
    fn keeps_tokens_apart(&self) -> bool {
        self.groups.iter().all(|group| group.kind.keeps_tokens_apart())
    }

    /// Returns whether a right guess counts as computed. No state keeps a guess, so a model with
    /// states computes its token again once it is known.
    #[must_use]
    pub fn keeps_guesses(&self) -> bool {
        self.keeps_tokens_apart() || planted(Bug::CountGuessesOfState)
    }

    /// Returns whether so many tokens contain a full block, which a lookup may find.
    #[must_use]
    pub fn has_full_block(&self, num_tokens: usize) -> bool {
        num_tokens >= self.block_size
    }

    /// Returns how many of the tokens that a lookup found lie in a tail. All other hits are full
    /// blocks.
    #[must_use]
    pub fn tail_tokens(&self, num_hit_tokens: usize) -> usize {
        num_hit_tokens % self.block_size
    }

    /// Returns the blocks that become full, and are not registered yet, when the first `num_known`
    /// tokens of a request are computed. `num_hit_tokens` of them were found by the lookup just
    /// before.
    #[must_use]
    pub fn filled(&self, held: &Held, num_hit_tokens: usize, num_known: usize) -> Range<usize> {
        let first = held.num_registered + self.hit_blocks(num_hit_tokens);
        // Most steps fill no block, and are spared the division.
        match num_known >= (first + 1) * self.block_size {
            true => first..num_known / self.block_size,
            false => first..first,
        }
    }

    /// Returns the changes that `op` makes to what its request holds.
    #[must_use]
    pub fn growth(&self, held: &Held, op: &AllocateOp) -> Growth {
        let num_hit_blocks = self.hit_blocks(op.num_hit_tokens);
        let num_blocks = op.num_tokens.max(held.num_room_tokens).div_ceil(self.block_size);
        let of_group = |group: &GroupDemand| match group.kind {
            KvKind::Full => num_blocks,
            kind => {
                let num_settled = op.num_settled_tokens / self.block_size;
                num_blocks.saturating_sub(kind.first_block(num_settled, self.block_size))
            }
        };
        Growth {
            num_blocks: self.groups.iter().map(of_group).sum(),
            num_room_tokens: num_blocks * self.block_size,
            num_registered: held.num_registered + num_hit_blocks + op.full_blocks.len(),
            // A tail that the last epoch left is adopted with the first blocks, or dropped.
            has_tail: op.catches_up || held.has_tail && held.num_blocks > 0,
            fills: !op.full_blocks.is_empty(),
        }
    }

    /// Returns the number of blocks of all groups for so many tokens of one request. A group of a
    /// window never holds more than its most, because blocks before the window are freed.
    #[must_use]
    pub fn num_blocks_for(&self, num_tokens: usize) -> usize {
        self.num_blocks_max(num_tokens.div_ceil(self.block_size))
    }

    /// Returns the same for a table of so many blocks.
    fn num_blocks_max(&self, num_blocks: usize) -> usize {
        let of_groups = self.groups.iter().map(|group| group.num_blocks_max(num_blocks));
        of_groups.fold(0, usize::saturating_add)
    }

    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(super) fn groups(&self) -> &[GroupDemand] {
        &self.groups
    }

    fn hit_blocks(&self, num_hit_tokens: usize) -> usize {
        match num_hit_tokens {
            0 => 0,
            _ => num_hit_tokens / self.block_size,
        }
    }
}

impl Held {
    /// Returns the count of a request that has no blocks yet. `has_begun` says whether the request
    /// has output already. An earlier epoch may have left it a tail then.
    #[must_use]
    pub fn new(has_begun: bool) -> Self {
        Self { has_tail: has_begun, ..Self::default() }
    }

    /// Returns the number of the request's blocks, without those that it no longer reads.
    #[must_use]
    pub fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Returns whether the block table has room for so many tokens.
    #[must_use]
    pub fn has_room(&self, num_tokens: usize) -> bool {
        num_tokens <= self.num_room_tokens
    }

    /// Returns whether the manager has, or may have, a tail for the request.
    #[must_use]
    pub fn has_tail(&self) -> bool {
        self.has_tail
    }

    /// Records an allocation.
    pub fn grow(&mut self, growth: Growth) {
        self.num_blocks = growth.num_blocks;
        self.num_room_tokens = growth.num_room_tokens;
        self.num_registered = growth.num_registered;
        self.has_tail = growth.has_tail;
    }

    /// Records that the request has no blocks.
    pub fn release(&mut self) {
        let num_registered = match planted(Bug::KeepRegistered) {
            true => self.num_registered,
            false => 0,
        };
        *self = Self { num_registered, ..Self::default() };
    }
}

impl GroupDemand {
    /// Returns the number of blocks that a request of so many blocks' worth of tokens holds at
    /// most.
    pub(super) fn num_blocks_max(&self, num_blocks: usize) -> usize {
        num_blocks.min(self.most_blocks)
    }
}

impl Growth {
    /// Returns whether the allocation registers full blocks.
    #[must_use]
    pub fn fills(&self) -> bool {
        self.fills
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::{
        kv_cache::{KvSpec, hashes::BlockHash},
        request::ids::RequestId,
    };

    fn of_kinds(num_blocks: u32, kinds: &[KvKind]) -> Demand {
        let spec = KvSpec::of_layers(kinds, 4, 64);
        Demand::new(&KvCacheConfig { num_blocks, num_step_tokens: 8, spec })
    }

    /// Ten blocks for tokens.
    fn demand() -> Demand {
        of_kinds(11, &[KvKind::Full; 2])
    }

    fn op(num_tokens: usize, num_hit_tokens: usize, num_full: usize) -> AllocateOp {
        AllocateOp {
            request: RequestId(1),
            num_tokens,
            num_hit_tokens,
            num_settled_tokens: num_hit_tokens,
            num_tokens_to_fit: num_tokens,
            spare_blocks: 0,
            full_blocks: vec![BlockHash([0; 32]); num_full],
            catches_up: false,
        }
    }

    /// Returns the count after an allocation.
    fn after(held: Held, op: &AllocateOp) -> Held {
        let mut held = held;
        held.grow(demand().growth(&held, op));
        held
    }

    #[test]
    fn the_whole_cache_has_room_for_all_blocks_but_the_null_block() {
        assert!(demand().fits(40) && !demand().fits(41));
        assert_eq!(demand().check_servable(39), Ok(()));
        let refused =
            RequestError::Unservable { needed_blocks: 11, total_blocks: 10, block_size: 4 };
        assert_eq!(demand().check_servable(40), Err(refused), "the first output token counts");
        assert_eq!((demand().blocks_in(0.1), demand().blocks_in(0.0)), (1, 0));
        assert_eq!(demand().num_tokens_max(), Some(40));
    }

    /// A window of six tokens, in steps of eight: 13 tokens in four blocks, and three at the edges.
    #[test]
    fn a_window_bounds_the_blocks_of_a_long_request() {
        let sliding = KvKind::Sliding { window: 6 };
        let demand = of_kinds(11, &[sliding]);
        assert_eq!((demand.num_blocks_for(24), demand.num_blocks_for(4_000)), (6, 7));
        assert_eq!((demand.num_tokens_max(), demand.fits(usize::MAX)), (None, true));
        let demand = of_kinds(11, &[KvKind::Full, sliding]);
        assert_eq!((demand.num_blocks_for(20), demand.num_blocks_for(21)), (10, 12));
        assert_eq!(demand.num_tokens_max(), Some(20));
        let demand = of_kinds(21, &[KvKind::Full, sliding]);
        assert_eq!((demand.num_blocks_for(52), demand.num_tokens_max()), (20, Some(52)));
        assert!(demand.fits(52) && !demand.fits(53));
        let chunked = of_kinds(11, &[KvKind::ChunkedLocal { chunk: 6 }]);
        assert_eq!(chunked.num_blocks_for(4_000), 7);
    }

    /// The state before a step of eight tokens, those of its two blocks, and three at the edges.
    #[test]
    fn a_state_takes_as_many_blocks_however_long_a_request_is() {
        let demand = of_kinds(11, &[KvKind::State]);
        assert_eq!([4, 24, 4_000].map(|tokens| demand.num_blocks_for(tokens)), [1, 6, 6]);
        assert_eq!((demand.num_tokens_max(), demand.has_tails()), (None, false));
        assert!(of_kinds(11, &[KvKind::Full]).has_tails());
        assert!(!of_kinds(11, &[KvKind::Full, KvKind::State]).has_tails());
    }

    #[test]
    fn blocks_before_a_window_are_not_counted() {
        let demand = of_kinds(11, &[KvKind::Full, KvKind::Sliding { window: 6 }]);
        let held = Held::default();
        let growth = |num_settled_tokens| {
            demand.growth(&held, &AllocateOp { num_settled_tokens, ..op(17, 0, 0) }).num_blocks
        };
        // Settled tokens count in whole blocks. A token at position 12 reads from position 7 on.
        assert_eq!([0, 4, 8, 12, 15, 16].map(growth), [10, 10, 10, 9, 9, 8]);
    }

    #[test]
    fn only_registered_blocks_are_settled() {
        let held = after(Held::default(), &op(9, 4, 1));
        assert_eq!([3, 8, 9].map(|computed| demand().settled(&held, 0, computed)), [3, 8, 8]);
        assert_eq!(demand().settled(&Held::default(), 6, 6), 4, "two tokens are in the tail");
    }

    #[test]
    fn a_table_has_room_to_the_end_of_its_last_block() {
        let held = Held::default();
        assert!(held.has_room(0) && !held.has_room(1));
        let held = after(held, &op(5, 0, 0));
        assert!(held.has_room(8) && !held.has_room(9));
        let held = after(held, &op(7, 0, 1));
        assert!(held.has_room(8) && !held.has_room(9), "a table never shrinks");
        assert_eq!(held.num_blocks(), 2);
    }

    #[test]
    fn a_block_is_filled_once() {
        let demand = demand();
        let held = Held::default();
        assert_eq!(demand.filled(&held, 0, 3), 0..0);
        assert_eq!(demand.filled(&held, 0, 9), 0..2);
        assert_eq!(demand.filled(&held, 4, 9), 1..2, "the first block was a hit");
        assert_eq!(demand.filled(&held, 6, 7), 1..1, "two tokens are in the tail");
        let held = after(held, &op(9, 4, 1));
        assert_eq!(demand.filled(&held, 0, 11), 2..2);
        assert_eq!(demand.filled(&held, 0, 12), 2..3);
    }

    #[test]
    fn a_lookup_finds_full_blocks_and_a_tail() {
        assert!(demand().has_full_block(4) && !demand().has_full_block(3));
        assert_eq!((demand().tail_tokens(8), demand().tail_tokens(11)), (0, 3));
    }

    #[test]
    fn a_tail_of_the_last_epoch_counts_until_the_first_blocks() {
        let held = Held::new(true);
        assert!(held.has_tail() && !Held::new(false).has_tail());
        assert!(!after(held, &op(5, 0, 0)).has_tail());
        let catches_up = AllocateOp { catches_up: true, ..op(5, 0, 0) };
        let held = after(held, &catches_up);
        assert!(held.has_tail() && after(held, &op(9, 0, 0)).has_tail());
    }

    #[test]
    fn a_release_leaves_nothing() {
        let mut held = after(Held::new(true), &op(9, 0, 2));
        held.release();
        assert_eq!(held, Held::default());
    }
}
