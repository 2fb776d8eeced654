//! The places of encoder outputs in memory (embeddings of images and sounds), counted in
//! embeddings: vLLM's `EncoderCacheManager`. An output that no request needs stays until its place
//! is needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::logic::request::{ids::RequestId, media::MultimodalFeature};

/// Returns the encoder work allowed in one step, in embeddings. The largest item always fits.
#[must_use]
pub fn encoder_budget(max_num_batched_tokens: usize, largest_item: usize) -> usize {
    max_num_batched_tokens.max(largest_item)
}

#[derive(Debug, Clone)]
struct Entry {
    num_embeds: usize,
    users: BTreeSet<RequestId>,
    /// Its turn to be evicted. Present if and only if no request uses it.
    freeable_since: Option<u64>,
}

/// The planned content of the encoder cache. The embeddings themselves are in the executors' store.
#[derive(Debug, Clone)]
pub struct EncoderSlots {
    cache_size: usize,
    num_free_slots: usize,
    num_freeable_slots: usize,
    cached: BTreeMap<Arc<str>, Entry>,
    /// Items that no request uses, by turn: first in, first evicted.
    freeable: BTreeMap<u64, Arc<str>>,
    num_freed_ever: u64,
    evicted: Vec<Arc<str>>,
}

impl EncoderSlots {
    /// Returns an empty cache with room for `cache_size` embeddings.
    #[must_use]
    pub fn new(cache_size: usize) -> Self {
        Self {
            cache_size,
            num_free_slots: cache_size,
            num_freeable_slots: cache_size,
            cached: BTreeMap::new(),
            freeable: BTreeMap::new(),
            num_freed_ever: 0,
            evicted: Vec::new(),
        }
    }

    /// Returns the maximum number of embeddings that it holds.
    #[must_use]
    pub fn cache_size(&self) -> usize {
        self.cache_size
    }

    /// Returns the number of embeddings that fit without an eviction.
    #[must_use]
    pub fn num_free_slots(&self) -> usize {
        self.num_free_slots
    }

    /// Returns the number of embeddings that fit when all unused items are evicted.
    #[must_use]
    pub fn num_freeable_slots(&self) -> usize {
        self.num_freeable_slots
    }

    /// Returns whether the item is cached. If it is, `request` uses it from now on.
    pub fn check_and_update_cache(&mut self, request: RequestId, item: &MultimodalFeature) -> bool {
        let Some(entry) = self.cached.get_mut(&item.identifier) else { return false };
        if let Some(turn) = entry.freeable_since.take() {
            self.freeable.remove(&turn);
            self.num_freeable_slots -= entry.num_embeds;
        }
        entry.users.insert(request);
        true
    }

    /// Returns whether the item can be encoded now, beside `num_scheduled` embeddings that were
    /// found to fit before it. `budget` is the rest of the step's encoder work. Evicts items if
    /// that is necessary.
    pub fn can_allocate(
        &mut self,
        item: &MultimodalFeature,
        budget: usize,
        num_scheduled: usize,
    ) -> bool {
        let wanted = item.num_embeds + num_scheduled;
        if item.num_embeds > budget || wanted > self.num_freeable_slots {
            return false;
        }
        while wanted > self.num_free_slots {
            let Some((_, identifier)) = self.freeable.pop_first() else { return false };
            if let Some(entry) = self.cached.remove(&identifier) {
                self.num_free_slots += entry.num_embeds;
                self.evicted.push(identifier);
            }
        }
        true
    }

    /// Gives the item the place that `can_allocate` found, and makes `request` use it.
    pub fn allocate(&mut self, request: RequestId, item: &MultimodalFeature) {
        assert!(item.num_embeds <= self.num_free_slots, "no room for {}", item.identifier);
        self.num_free_slots -= item.num_embeds;
        self.num_freeable_slots -= item.num_embeds;
        let users = BTreeSet::from([request]);
        let entry = Entry { num_embeds: item.num_embeds, users, freeable_since: None };
        self.cached.insert(Arc::clone(&item.identifier), entry);
    }

    /// Records that `request` no longer uses the item.
    pub fn free(&mut self, request: RequestId, identifier: &Arc<str>) {
        let Some(entry) = self.cached.get_mut(identifier) else { return };
        if entry.users.remove(&request) && entry.users.is_empty() {
            self.num_freed_ever += 1;
            entry.freeable_since = Some(self.num_freed_ever);
            self.freeable.insert(self.num_freed_ever, Arc::clone(identifier));
            self.num_freeable_slots += entry.num_embeds;
        }
    }

    /// Returns whether the item has a place.
    #[must_use]
    pub fn contains(&self, identifier: &Arc<str>) -> bool {
        self.cached.contains_key(identifier)
    }

    /// Returns whether a request uses the item.
    #[must_use]
    pub fn is_used(&self, identifier: &Arc<str>) -> bool {
        self.cached.get(identifier).is_some_and(|entry| !entry.users.is_empty())
    }

    /// Returns the items that no request uses, the first to be evicted first.
    pub fn unused(&self) -> impl Iterator<Item = &Arc<str>> + '_ {
        self.freeable.values()
    }

    /// Gives an output of an earlier manager a place, if there is room. No request uses it yet.
    pub fn adopt(&mut self, identifier: &Arc<str>, num_embeds: usize) -> bool {
        if num_embeds > self.num_free_slots || self.contains(identifier) {
            return false;
        }
        self.num_free_slots -= num_embeds;
        self.num_freed_ever += 1;
        let freeable_since = Some(self.num_freed_ever);
        let entry = Entry { num_embeds, users: BTreeSet::new(), freeable_since };
        self.cached.insert(Arc::clone(identifier), entry);
        self.freeable.insert(self.num_freed_ever, Arc::clone(identifier));
        true
    }

    /// Removes an item that will not be encoded after all, or whose output is dropped.
    pub fn cancel(&mut self, identifier: &Arc<str>) {
        if let Some(entry) = self.cached.remove(identifier) {
            match entry.freeable_since {
                Some(turn) => drop(self.freeable.remove(&turn)),
                None => self.num_freeable_slots += entry.num_embeds,
            }
            self.num_free_slots += entry.num_embeds;
        }
    }

    /// Returns the items evicted since the last call, whose embeddings can be dropped.
    pub fn take_evicted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: RequestId = RequestId(1);
    const BOB: RequestId = RequestId(2);

    fn item(identifier: &str, num_embeds: usize) -> MultimodalFeature {
        MultimodalFeature::for_test(identifier, 0, num_embeds)
    }

    fn check(cache: &EncoderSlots, free: usize, freeable: usize) {
        assert_eq!((cache.num_free_slots(), cache.num_freeable_slots()), (free, freeable));
    }

    /// vllm-behaviour §10, test_encoder_cache_manager: size 10, an item of 4.
    #[test]
    fn a_freed_item_keeps_its_slots_until_they_are_needed() {
        let mut cache = EncoderSlots::new(10);
        let cat = item("cat", 4);
        assert!(!cache.check_and_update_cache(ALICE, &cat));
        assert!(cache.can_allocate(&cat, 100, 0));
        cache.allocate(ALICE, &cat);
        check(&cache, 6, 6);
        cache.free(ALICE, &cat.identifier);
        check(&cache, 6, 10);
        assert!(cache.check_and_update_cache(BOB, &cat), "restored");
        check(&cache, 6, 6);
    }

    #[test]
    fn the_oldest_freed_item_is_evicted_and_listed_once() {
        let mut cache = EncoderSlots::new(10);
        let (first, second) = (item("first", 6), item("second", 5));
        cache.allocate(ALICE, &first);
        cache.free(ALICE, &first.identifier);
        assert!(cache.can_allocate(&second, 100, 0));
        cache.allocate(BOB, &second);
        assert_eq!(cache.take_evicted(), ["first".into()]);
        assert!(cache.take_evicted().is_empty());
        assert!(!cache.check_and_update_cache(ALICE, &first));
        check(&cache, 5, 5);
    }

    #[test]
    fn an_item_in_use_by_another_is_never_evicted() {
        let mut cache = EncoderSlots::new(10);
        let shared = item("shared", 6);
        cache.allocate(ALICE, &shared);
        assert!(cache.check_and_update_cache(BOB, &shared));
        cache.free(ALICE, &shared.identifier);
        check(&cache, 4, 4);
        assert!(!cache.can_allocate(&item("other", 5), 100, 0));
        assert!(!cache.can_allocate(&item("small", 3), 2, 0), "over the step's budget");
        assert!(!cache.can_allocate(&item("small", 3), 100, 2), "no room beside what came before");
    }

    #[test]
    fn a_cancelled_item_leaves_no_trace() {
        let mut cache = EncoderSlots::new(10);
        cache.allocate(ALICE, &item("cat", 4));
        cache.cancel(&"cat".into());
        check(&cache, 10, 10);
        cache.allocate(ALICE, &item("cat", 4));
        cache.free(ALICE, &"cat".into());
        cache.cancel(&"cat".into());
        check(&cache, 10, 10);
        assert!(!cache.check_and_update_cache(ALICE, &item("cat", 4)));
    }

    #[test]
    fn the_budget_admits_the_largest_item() {
        assert_eq!(encoder_budget(1024, 600), 1024);
        assert_eq!(encoder_budget(1024, 4096), 4096);
    }
}
