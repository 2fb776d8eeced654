//! The encoder cache's decisions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{EncoderAnswer, EncoderNeed, EncoderNeeds, EncoderSlots};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        failure::Failure,
        ids::{Epoch, RequestId},
        media::MultimodalFeature,
    },
};

/// Uses an item while it is encoded, so that its place stays. No request has this id.
const ENCODER: RequestId = RequestId(u64::MAX);

/// Items for the encoder worker to encode together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderBatch {
    /// The manager that made it: each has a number of its own.
    pub manager: u64,
    /// The batch of this manager, from 1.
    pub number: u64,
    /// The items, at least one.
    pub items: Vec<MultimodalFeature>,
}

/// The end of an item of a batch.
pub type Encoded = (Arc<str>, Result<(), Failure>);

/// The figures that observers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EncoderCacheView {
    /// Room for embeddings.
    pub cache_size: usize,
    /// Room that is free.
    pub num_free: usize,
    /// Room that is free or can be freed at once.
    pub num_freeable: usize,
    /// Items whose embeddings are in memory.
    pub num_ready: usize,
    /// Items that wait for the encoder, or are in it.
    pub num_encoding: usize,
    /// Items encoded so far.
    pub num_encoded: u64,
    /// Of these, the ones that were not computed, because a client has sent the embeddings, or
    /// another engine has stored them.
    pub num_received: u64,
    /// Needs that found their item in memory or on its way.
    pub num_hits: u64,
}

/// The encoder cache of one engine.
#[derive(Debug)]
pub struct EncoderCache {
    manager: u64,
    slots: EncoderSlots,
    /// Largest number of embeddings of a batch of several items.
    budget: usize,
    epoch: Epoch,
    version: u64,
    /// The items that requests need, by request.
    needed: BTreeMap<RequestId, BTreeSet<Arc<str>>>,
    starved: Option<RequestId>,
    /// Items in memory.
    ready: BTreeSet<Arc<str>>,
    /// Items that cannot be encoded, while a request needs them.
    failed: BTreeMap<Arc<str>, Failure>,
    /// Items that have a place and wait for the encoder.
    queue: VecDeque<MultimodalFeature>,
    batch: Option<EncoderBatch>,
    num_batches: u64,
    num_encoded: u64,
    num_hits: u64,
}

impl EncoderCache {
    /// Returns an empty cache with room for `cache_size` embeddings, which encodes up to `budget`
    /// embeddings at once. `manager` is a number that no earlier manager had.
    #[must_use]
    pub fn new(manager: u64, cache_size: usize, budget: usize) -> Self {
        Self {
            manager,
            slots: EncoderSlots::new(cache_size),
            budget,
            epoch: Epoch::default(),
            version: 0,
            needed: BTreeMap::new(),
            starved: None,
            ready: BTreeSet::new(),
            failed: BTreeMap::new(),
            queue: VecDeque::new(),
            batch: None,
            num_batches: 0,
            num_encoded: 0,
            num_hits: 0,
        }
    }

    /// Takes over the results of an earlier manager. Returns those that have no room.
    pub fn adopt(&mut self, stored: Vec<(Arc<str>, usize)>) -> Vec<Arc<str>> {
        let mut dropped = Vec::new();
        for (identifier, num_embeds) in stored {
            match self.slots.adopt(&identifier, num_embeds) {
                true => drop(self.ready.insert(identifier)),
                false => dropped.push(identifier),
            }
        }
        dropped
    }

    /// Returns whether the item has a place.
    #[must_use]
    pub fn knows(&self, identifier: &Arc<str>) -> bool {
        self.slots.contains(identifier)
    }

    /// Takes a list of needs. Returns false if it is older than the last one.
    pub fn set_needs(&mut self, needs: &EncoderNeeds) -> bool {
        if (needs.epoch, needs.version) < (self.epoch, self.version) {
            return false;
        }
        (self.epoch, self.version) = (needs.epoch, needs.version);
        self.release_unlisted(&needs.needs);
        self.starved = None;
        let nums_held =
            needs.needs.iter().map(|need| self.keep_first(need)).collect::<Vec<usize>>();
        self.cancel_unused();
        for (need, num_held) in needs.needs.iter().zip(nums_held) {
            self.place_next(need, num_held);
        }
        true
    }

    /// Keeps the first items of a request that have a place, and releases those behind an item that
    /// has none. A request with a place for its first item goes on. One that holds only a later
    /// item could wait for the room that it takes itself. Returns the number of items kept.
    fn keep_first(&mut self, need: &EncoderNeed) -> usize {
        let EncoderNeed { request, ref items } = *need;
        let has_place = |item: &MultimodalFeature| self.is_needed_by(request, &item.identifier);
        let num_held = items.iter().take_while(|item| has_place(item)).count();
        for item in &items[num_held..] {
            let is_first = items[..num_held].iter().any(|it| it.identifier == item.identifier);
            if !is_first && self.is_needed_by(request, &item.identifier) {
                self.slots.free(request, &item.identifier);
                self.needed.entry(request).or_default().remove(&item.identifier);
            }
        }
        num_held
    }

    fn is_needed_by(&self, request: RequestId, identifier: &Arc<str>) -> bool {
        self.needed.get(&request).is_some_and(|items| items.contains(identifier))
    }

    /// Gives places to the items of a request behind the first `num_held`, until one has no room.
    /// Later requests then get no new place either, because small items would otherwise keep a
    /// large one out for ever.
    fn place_next(&mut self, need: &EncoderNeed, num_held: usize) {
        for item in &need.items[num_held..] {
            if self.failed.contains_key(&item.identifier) || self.holds(need.request, item) {
                continue;
            }
            if self.starved.is_some() || !self.place(need.request, item) {
                self.starved.get_or_insert(need.request);
                break;
            }
        }
    }

    /// Releases the items that requests no longer need.
    fn release_unlisted(&mut self, needs: &[EncoderNeed]) {
        let mut listed: BTreeMap<RequestId, BTreeSet<Arc<str>>> = BTreeMap::new();
        for need in needs {
            let identifiers = need.items.iter().map(|item| Arc::clone(&item.identifier));
            listed.entry(need.request).or_default().extend(identifiers);
        }
        let is_listed = |request: &RequestId, identifier: &Arc<str>| {
            listed.get(request).is_some_and(|items| items.contains(identifier))
        };
        for (request, items) in &mut self.needed {
            items.retain(|identifier| {
                let stays = is_listed(request, identifier) || planted(Bug::LeakPin);
                if !stays {
                    self.slots.free(*request, identifier);
                }
                stays
            });
        }
        self.needed.retain(|_, items| !items.is_empty());
        let all: BTreeSet<_> = listed.values().flatten().collect();
        self.failed.retain(|identifier, _| all.contains(identifier));
    }

    /// Takes items that no request uses out of the queue. Nothing was computed for them, so they
    /// need not stay. Their places could go to other items while they are encoded.
    fn cancel_unused(&mut self) {
        let slots = &mut self.slots;
        self.queue.retain(|item| {
            let is_used = slots.is_used(&item.identifier);
            if !is_used {
                slots.cancel(&item.identifier);
            }
            is_used
        });
    }

    /// Returns whether the item has a place, and makes the request use it.
    fn holds(&mut self, request: RequestId, item: &MultimodalFeature) -> bool {
        if !self.slots.check_and_update_cache(request, item) {
            return false;
        }
        let is_new = self.needed.entry(request).or_default().insert(Arc::clone(&item.identifier));
        self.num_hits += u64::from(is_new);
        true
    }

    /// Gives an item a place, and puts it in the queue. Returns false if there is no room.
    fn place(&mut self, request: RequestId, item: &MultimodalFeature) -> bool {
        let has_room = self.slots.can_allocate(item, usize::MAX, 0);
        if has_room {
            self.slots.allocate(request, item);
            self.needed.entry(request).or_default().insert(Arc::clone(&item.identifier));
            self.queue.push_back(item.clone());
        }
        has_room
    }

    /// Returns the next items to encode, if the encoder is free.
    pub fn next_batch(&mut self) -> Option<EncoderBatch> {
        if self.batch.is_some() {
            return None;
        }
        let mut items: Vec<MultimodalFeature> = Vec::new();
        let mut num_embeds = 0;
        while let Some(item) = self.queue.front() {
            if !items.is_empty() && num_embeds + item.num_embeds > self.budget {
                break;
            }
            num_embeds += item.num_embeds;
            self.slots.check_and_update_cache(ENCODER, item);
            items.extend(self.queue.pop_front());
        }
        if items.is_empty() {
            return None;
        }
        self.num_batches += 1;
        let (manager, number) = (self.manager, self.num_batches);
        self.batch = Some(EncoderBatch { manager, number, items });
        self.batch.clone()
    }

    /// Returns the batch that the encoder has. It is sent again, because a message may be lost.
    #[must_use]
    pub fn batch(&self) -> Option<&EncoderBatch> {
        self.batch.as_ref()
    }

    /// Takes the end of a batch. Returns false if it is not the one that the encoder has.
    pub fn finish(&mut self, manager: u64, number: u64, encoded: Vec<Encoded>) -> bool {
        let is_it = |batch: &mut EncoderBatch| (batch.manager, batch.number) == (manager, number);
        let Some(batch) = self.batch.take_if(is_it) else { return false };
        let mut ends: BTreeMap<Arc<str>, Result<(), Failure>> = encoded.into_iter().collect();
        for item in batch.items {
            let lost = || Err(Failure::Encoder("the item got no result".to_owned()));
            match ends.remove(&item.identifier).unwrap_or_else(lost) {
                Ok(()) => {
                    self.num_encoded += 1;
                    self.slots.free(ENCODER, &item.identifier);
                    self.ready.insert(item.identifier);
                }
                Err(failure) => {
                    if !planted(Bug::KeepFailedItem) {
                        self.slots.cancel(&item.identifier);
                    }
                    for items in self.needed.values_mut() {
                        items.remove(&item.identifier);
                    }
                    self.failed.insert(item.identifier, failure);
                }
            }
        }
        true
    }

    /// Returns the answer to the last list.
    #[must_use]
    pub fn answer(&self) -> EncoderAnswer {
        let needed = self.needed.iter();
        let needed = needed.flat_map(|(id, items)| items.iter().map(move |item| (*id, item)));
        let ready = needed.filter(|(_, item)| self.ready.contains(*item));
        EncoderAnswer {
            epoch: self.epoch,
            version: self.version,
            ready: ready.map(|(id, item)| (id, Arc::clone(item))).collect(),
            failed: self.failed.iter().map(|(item, why)| (Arc::clone(item), why.clone())).collect(),
            starved: self.starved,
        }
    }

    /// Forgets all results that no request needs. [`EncoderCache::take_evicted`] returns them.
    pub fn reset(&mut self) -> Vec<Arc<str>> {
        let unused: Vec<Arc<str>> = self.slots.unused().cloned().collect();
        for identifier in &unused {
            self.slots.cancel(identifier);
            self.ready.remove(identifier);
        }
        unused
    }

    /// Returns the results that were evicted since the last call. Their embeddings can be dropped.
    pub fn take_evicted(&mut self) -> Vec<Arc<str>> {
        let evicted = self.slots.take_evicted();
        for identifier in &evicted {
            self.ready.remove(identifier);
        }
        evicted
    }

    /// Returns the figures for observers, except those of the store.
    #[must_use]
    pub fn view(&self) -> EncoderCacheView {
        let in_batch = self.batch.as_ref().map_or(0, |batch| batch.items.len());
        EncoderCacheView {
            cache_size: self.slots.cache_size(),
            num_free: self.slots.num_free_slots(),
            num_freeable: self.slots.num_freeable_slots(),
            num_ready: self.ready.len(),
            num_encoding: self.queue.len() + in_batch,
            num_encoded: self.num_encoded,
            num_received: 0,
            num_hits: self.num_hits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(request: u64, items: &[(&str, usize)]) -> EncoderNeed {
        let item = |(name, length): &(&str, usize)| MultimodalFeature::for_test(name, 0, *length);
        EncoderNeed { request: RequestId(request), items: items.iter().map(item).collect() }
    }

    fn needs(version: u64, needs: Vec<EncoderNeed>) -> EncoderNeeds {
        EncoderNeeds { epoch: Epoch::default(), version, needs }
    }

    #[test]
    fn an_item_that_lost_its_place_is_not_encoded() {
        let mut cache = EncoderCache::new(0, 6, 6);
        let other = need(2, &[("x", 2)]);
        assert!(cache.set_needs(&needs(1, vec![other.clone()])));
        assert!(cache.next_batch().is_some());
        assert!(cache.set_needs(&needs(2, vec![other.clone(), need(1, &[("b", 3)])])));
        // The request begins again. Its first item takes the room of the one that is queued.
        let again = need(1, &[("a", 2), ("b", 3)]);
        assert!(cache.set_needs(&needs(3, vec![other, again])));
        assert!(cache.finish(0, 1, vec![("x".into(), Ok(()))]));
        let batch = cache.next_batch().unwrap();
        let names: Vec<&str> = batch.items.iter().map(|item| item.identifier.as_ref()).collect();
        assert_eq!(names, ["a"]);
    }
}
