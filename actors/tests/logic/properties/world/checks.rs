//! The invariants that hold after each step.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_actors::logic::{
    kv_cache::{
        Demand, DirectoryUpdate, KvKind, Tail,
        block_pool::BlockKey,
        hashes::{extra_keys, hash_block, none_hash},
    },
    request::ids::{BlockId, RequestId},
    scheduler::{PauseState, Scheduled, output::SchedulerOutput},
};

use super::{super::device::BLOCK_SIZE, Entry, World};

impl World {
    /// Checks that each block is in as many tables as its count says, or free exactly once. Null
    /// blocks stand only before the other blocks of a window's table, and all tables of a request
    /// have the same length. No request holds more blocks than the scheduler counts with.
    pub(super) fn check_pool(&self) {
        let pool = self.kv_cache.pool();
        let demand = Demand::new(&self.config.kv_cache());
        let mut refs = BTreeMap::<BlockId, u32>::new();
        for (_, table) in self.kv_cache.tables() {
            let mut num_held = 0;
            for (group, of) in self.config.kv_spec.groups.iter().enumerate() {
                let blocks = table.group(group);
                assert_eq!(blocks.len(), table.group(0).len());
                let is_null = |block: &&BlockId| **block == 0 && of.kind != KvKind::Full;
                for &block in blocks.iter().skip_while(is_null) {
                    assert_ne!(block, 0, "a block that is read was freed");
                    *refs.entry(block).or_default() += 1;
                    num_held += 1;
                }
            }
            assert!(num_held <= demand.num_blocks_for(table.group(0).len() * BLOCK_SIZE));
        }
        let free: Vec<BlockId> = pool.free_block_ids().collect();
        assert_eq!(free.len(), pool.num_free());
        assert_eq!(free.len() + refs.len(), pool.num_usable());
        assert!(free.iter().all(|block| *block != 0 && !refs.contains_key(block)));
        for block in 1..self.config.num_blocks {
            assert_eq!(pool.ref_cnt(block), refs.get(&block).copied().unwrap_or_default());
        }
    }

    /// Checks that no block is reported as sealed or evicted twice.
    pub(super) fn check_updates(&self, updates: &[DirectoryUpdate]) {
        let mut sealed: BTreeMap<_, _> = self.directory.sealed().collect();
        for update in updates {
            match update {
                DirectoryUpdate::Sealed { block, hash, group } => {
                    assert_eq!(sealed.insert(*block, BlockKey::new(hash, *group)), None);
                }
                DirectoryUpdate::Evicted { block } => assert!(sealed.remove(block).is_some()),
                DirectoryUpdate::TailAt { .. } | DirectoryUpdate::TailGone { .. } => {}
            }
        }
    }

    /// Checks that each tail is the last block of each of its request's tables, or free blocks that
    /// cannot be hit. The directory knows all of them.
    pub(super) fn check_tails(&self) {
        let pool = self.kv_cache.pool();
        let held: BTreeMap<RequestId, &Tail> = self.kv_cache.held_tails().collect();
        for (&request, tail) in &held {
            for (group, block) in tail.blocks.iter().enumerate() {
                let table = self.kv_cache.block_ids(request).unwrap().group(group);
                assert_eq!((table.len(), table.last()), (tail.index + 1, Some(block)));
                assert!(pool.ref_cnt(*block) == 1 || pool.is_cached(*block));
            }
        }
        let kept: BTreeMap<RequestId, &Tail> = self.kv_cache.kept_tails().collect();
        let blocks: Vec<BlockId> = kept.values().flat_map(|tail| tail.blocks.clone()).collect();
        let owned: BTreeSet<BlockId> = blocks.iter().copied().collect();
        assert_eq!(blocks.len(), owned.len(), "a block is kept for two");
        assert!(blocks.iter().all(|block| pool.ref_cnt(*block) == 0 && !pool.is_cached(*block)));
        assert!(kept.keys().all(|request| self.kv_cache.block_ids(*request).is_none()));
        let all = held.into_iter().chain(kept).map(|(request, tail)| (request, tail.clone()));
        assert_eq!(BTreeMap::from_iter(all), self.directory.tails().collect());
    }

    pub(super) fn check_budgets(&self, scheduled: &Scheduled) {
        let output = &scheduled.output;
        let tokens: Vec<usize> = output.num_scheduled_tokens().map(|(_, tokens)| tokens).collect();
        assert!(tokens.iter().all(|&tokens| tokens > 0));
        assert_eq!(tokens.iter().sum::<usize>(), output.total_num_scheduled_tokens);
        let has_own_step = self.config.computes_whole_prompts() && tokens.len() == 1;
        let within = output.total_num_scheduled_tokens <= self.scheduler.token_budget();
        assert!(within || has_own_step, "{tokens:?}");
        assert!(self.scheduler.stats().num_running <= self.config.max_num_seqs);
    }

    /// Returns the members of the cohort that have not ended.
    pub(super) fn live_cohort(&self) -> BTreeSet<RequestId> {
        let is_live = |id: &&RequestId| self.ledger.get(id).is_some_and(|e| e.finish.is_none());
        self.cohort.iter().flatten().filter(is_live).copied().collect()
    }

    /// Checks that only members of the cohort are scheduled, and that they make progress or end.
    /// Other requests may run only if all members ended before the step was scheduled.
    pub(super) fn check_cohort(&self, scheduled: &Scheduled, cohort: &BTreeSet<RequestId>) {
        let has_ended = |id: &RequestId| scheduled.ended.iter().any(|end| end.request == *id);
        if cohort.iter().all(has_ended) {
            return;
        }
        let mut scheduled_ids = scheduled.output.num_scheduled_tokens().map(|(request, _)| request);
        assert!(scheduled_ids.all(|request| cohort.contains(&request)));
        let is_paused = self.scheduler.pause() != PauseState::Unpaused;
        let gets_on = !scheduled.output.is_empty() || cohort.iter().any(has_ended);
        assert!(is_paused || gets_on, "{cohort:?} is stuck");
    }

    /// Checks that the device's block tables, built from differences, equal the manager's, except
    /// for the changes of a step planned ahead.
    pub(super) fn check_tables(&self) {
        // The device is not told which blocks a window has passed.
        let agrees = |(known, seen): (&BlockId, &BlockId)| known == seen || *known == 0;
        for (request, tables) in self.device.tables() {
            let known = self.kv_cache.block_ids(request);
            let is_over = |next: &SchedulerOutput| next.finished.contains(&request);
            if self.planned.front().is_some_and(is_over) {
                continue;
            }
            let known = known.unwrap();
            for (group, table) in tables.iter().enumerate() {
                let known = known.group(group);
                assert!(known.len() == table.len() || !self.planned.is_empty());
                assert!(known.len() >= table.len() && known.iter().zip(table).all(agrees));
            }
        }
    }

    /// Checks that the content named by the directory is in memory.
    pub(super) fn check_directory(&self) {
        let mut contents = BTreeMap::new();
        for entry in self.ledger.values() {
            let request = &entry.request;
            let mut tokens = request.prompt_token_ids.to_vec();
            tokens.extend(&entry.output);
            let mut parent = none_hash(None);
            for end in (BLOCK_SIZE..=tokens.len()).step_by(BLOCK_SIZE) {
                let start = end - BLOCK_SIZE;
                let keys = extra_keys(
                    start,
                    BLOCK_SIZE,
                    request.lora.as_ref(),
                    &[],
                    request.cache_salt.as_ref(),
                );
                parent = hash_block(&parent, &tokens[start..end], &keys);
                contents.insert(parent, (request, tokens[..end].to_vec()));
            }
        }
        for (block, key) in self.directory.sealed() {
            let (request, tokens) = &contents[&key.hash()];
            let holds = self.device.holds((block, key.group()), request, tokens);
            assert!(holds, "block {block} is not sealed");
        }
        for (id, tail) in self.directory.tails() {
            let Entry { request, output, finish, .. } = &self.ledger[&id];
            let mut tokens = request.prompt_token_ids.to_vec();
            tokens.extend(output);
            let num_computed = tokens.len() - 1;
            let in_tail = num_computed.checked_sub(tail.index * BLOCK_SIZE);
            let counts = finish.is_none()
                && num_computed >= tail.caught_up_at
                && in_tail.is_some_and(|count| (1..=BLOCK_SIZE).contains(&count));
            let holds = |(group, &block): (usize, &BlockId)| {
                self.device.holds((block, group), request, &tokens[..num_computed])
            };
            let holds = || tail.blocks.iter().enumerate().all(holds);
            assert!(!counts || holds(), "the tail of {id:?} is not what it should be");
        }
    }
}
