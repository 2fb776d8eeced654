//! Demand: how many blocks a request's tokens take. The scheduler asks in tokens, and only this
//! module and the KV cache manager know the size of a block.

use std::ops::Range;

use super::{BlockIds, KvSpec};
use crate::{
    error::RequestError,
    logic::{
        kv_cache::allocation::AllocateOp,
        planted::{Bug, planted},
    },
};

/// The block arithmetic of one KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    block_size: usize,
    num_groups: usize,
    num_blocks: u32,
}

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
    num_room_tokens: usize,
    num_registered: usize,
    has_tail: bool,
    fills: bool,
}

impl Demand {
    /// Returns the arithmetic of a KV cache of `num_blocks` blocks, including the null block.
    #[must_use]
    pub fn new(num_blocks: u32, spec: &KvSpec) -> Self {
        let (block_size, num_groups) = (spec.block_size, spec.groups.len());
        Self { block_size, num_groups, num_blocks }
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

    /// Returns whether the whole cache has room for so many tokens of one request.
    #[must_use]
    pub fn fits(&self, num_tokens: usize) -> bool {
        self.num_blocks_for(num_tokens) <= self.num_usable_blocks()
    }

    /// Checks whether a prompt of this length can ever run.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if the prompt and its first output token do not fit the whole
    /// cache.
    pub fn check_servable(&self, prompt_len: usize) -> Result<(), RequestError> {
        let num_tokens = prompt_len + 1;
        if self.fits(num_tokens) {
            return Ok(());
        }
        Err(RequestError::Unservable {
            needed_blocks: self.num_blocks_for(num_tokens),
            total_blocks: self.num_usable_blocks(),
            block_size: self.block_size,
        })
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
        Growth {
            num_room_tokens: op.num_tokens.next_multiple_of(self.block_size),
            num_registered: held.num_registered + num_hit_blocks + op.full_blocks.len(),
            // A tail that the last epoch left is adopted with the first blocks, or dropped.
            has_tail: op.catches_up || held.has_tail && held.num_blocks > 0,
            fills: !op.full_blocks.is_empty(),
        }
    }

    /// Returns the number of blocks of all groups for so many tokens of one request.
    fn num_blocks_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.block_size) * self.num_groups
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

    /// Returns the number of the request's blocks.
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

    /// Records an allocation that appended `block_ids`.
    pub fn grow(&mut self, growth: Growth, block_ids: &BlockIds) {
        self.num_blocks += block_ids.num_blocks();
        self.num_room_tokens = self.num_room_tokens.max(growth.num_room_tokens);
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
    use crate::logic::{kv_cache::hashes::BlockHash, request::ids::RequestId};

    /// Ten blocks for tokens.
    fn demand() -> Demand {
        Demand::new(11, &KvSpec::full(2, 4, 64))
    }

    fn op(num_tokens: usize, num_hit_tokens: usize, num_full: usize) -> AllocateOp {
        AllocateOp {
            request: RequestId(1),
            num_tokens,
            num_hit_tokens,
            num_tokens_to_fit: num_tokens,
            spare_blocks: 0,
            full_blocks: vec![BlockHash([0; 32]); num_full],
            catches_up: false,
        }
    }

    /// Returns the count after an allocation that appended `num_blocks`.
    fn after(held: Held, op: &AllocateOp, num_blocks: u32) -> Held {
        let mut held = held;
        held.grow(demand().growth(&held, op), &Vec::from_iter(0..num_blocks).into());
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
        let mut of_two_groups = KvSpec::full(2, 4, 64);
        of_two_groups.groups.extend(of_two_groups.groups.clone());
        let demand = Demand::new(11, &of_two_groups);
        assert!(demand.fits(20) && !demand.fits(21));
    }

    #[test]
    fn a_table_has_room_to_the_end_of_its_last_block() {
        let held = Held::default();
        assert!(held.has_room(0) && !held.has_room(1));
        let held = after(held, &op(5, 0, 0), 2);
        assert!(held.has_room(8) && !held.has_room(9));
        let held = after(held, &op(7, 0, 1), 0);
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
        let held = after(held, &op(9, 4, 1), 3);
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
        assert!(!after(held, &op(5, 0, 0), 2).has_tail());
        let catches_up = AllocateOp { catches_up: true, ..op(5, 0, 0) };
        let held = after(held, &catches_up, 2);
        assert!(held.has_tail() && after(held, &op(9, 0, 0), 1).has_tail());
    }

    #[test]
    fn a_release_leaves_nothing() {
        let mut held = after(Held::new(true), &op(9, 0, 2), 3);
        held.release();
        assert_eq!(held, Held::default());
    }
}
