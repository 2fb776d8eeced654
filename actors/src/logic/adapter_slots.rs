//! The adapters in memory: a bounded number of slots. A new adapter takes the place of the one used
//! longest ago. An adapter in use keeps its place.

use std::{collections::BTreeSet, sync::Arc};

use super::request::lora::LoraRequest;
use crate::logic::planted::{Bug, planted};

/// The adapters that live requests use.
pub type AdaptersInUse = BTreeSet<Arc<LoraRequest>>;

/// Slots for adapters, each with its loaded form.
#[derive(Debug)]
pub struct AdapterSlots<T> {
    capacity: usize,
    /// The most recently used comes last.
    slots: Vec<(Arc<LoraRequest>, T)>,
}

impl<T> AdapterSlots<T> {
    /// Returns empty slots, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), slots: Vec::new() }
    }

    /// Returns an adapter.
    #[must_use]
    pub fn get(&self, adapter: &LoraRequest) -> Option<&T> {
        self.slots.iter().find(|(held, _)| **held == *adapter).map(|(_, loaded)| loaded)
    }

    /// Marks an adapter as the last that was used. Returns whether it has a slot.
    pub fn touch(&mut self, adapter: &LoraRequest) -> bool {
        let Some(index) = self.slots.iter().position(|(held, _)| **held == *adapter) else {
            return false;
        };
        self.slots[index..].rotate_left(1);
        true
    }

    /// Returns whether [`AdapterSlots::insert`] has a slot for a further adapter.
    #[must_use]
    pub fn has_room(&self, in_use: &AdaptersInUse) -> bool {
        self.slots.len() < self.capacity || self.victim(in_use).is_some()
    }

    /// Gives an adapter a slot, and returns the adapters that lost theirs. Where all slots are in
    /// use, there is one slot more until another adapter is inserted.
    pub fn insert(
        &mut self,
        adapter: Arc<LoraRequest>,
        loaded: T,
        in_use: &AdaptersInUse,
    ) -> Vec<(Arc<LoraRequest>, T)> {
        self.slots.retain(|(held, _)| **held != *adapter);
        let mut evicted = Vec::new();
        while self.slots.len() >= self.capacity
            && let Some(index) = self.victim(in_use)
        {
            evicted.push(self.slots.remove(index));
        }
        self.slots.push((adapter, loaded));
        evicted
    }

    /// Returns the adapters, the most recently used last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<LoraRequest>> {
        self.slots.iter().map(|(adapter, _)| adapter)
    }

    /// Returns the slot whose adapter was used longest ago, of those that are not in use.
    fn victim(&self, in_use: &AdaptersInUse) -> Option<usize> {
        if planted(Bug::ReuseAdapterSlot) {
            return self.slots.len().checked_sub(1);
        }
        self.slots.iter().position(|(held, _)| !in_use.contains(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str) -> Arc<LoraRequest> {
        Arc::new(LoraRequest::for_test(name))
    }

    fn names(slots: &AdapterSlots<u32>) -> Vec<&str> {
        slots.iter().map(|adapter| adapter.name.as_str()).collect()
    }

    #[test]
    fn the_adapter_used_longest_ago_loses_its_slot() {
        let mut slots = AdapterSlots::new(2);
        let none = AdaptersInUse::new();
        slots.insert(adapter("a"), 1, &none);
        slots.insert(adapter("b"), 2, &none);
        assert!(slots.touch(&adapter("a")));
        assert!(!slots.touch(&adapter("c")));
        let evicted = slots.insert(adapter("c"), 3, &none);
        assert_eq!(evicted, [(adapter("b"), 2)]);
        assert_eq!(names(&slots), ["a", "c"]);
        assert_eq!(slots.get(&adapter("a")), Some(&1));
    }

    #[test]
    fn an_adapter_in_use_keeps_its_slot() {
        let mut slots = AdapterSlots::new(2);
        let in_use = AdaptersInUse::from([adapter("a"), adapter("b")]);
        slots.insert(adapter("a"), 1, &in_use);
        slots.insert(adapter("b"), 2, &in_use);
        assert!(!slots.has_room(&in_use));
        assert!(slots.insert(adapter("c"), 3, &in_use).is_empty(), "one slot more");
        let evicted = slots.insert(adapter("d"), 4, &AdaptersInUse::from([adapter("b")]));
        assert_eq!(evicted, [(adapter("a"), 1), (adapter("c"), 3)]);
        assert_eq!(names(&slots), ["b", "d"]);
    }

    #[test]
    fn other_content_under_the_same_name_is_another_adapter() {
        let mut slots = AdapterSlots::new(2);
        let (old, none) = (adapter("a"), AdaptersInUse::new());
        let new = Arc::new(LoraRequest { version: 1, ..(*old).clone() });
        slots.insert(Arc::clone(&old), 1, &none);
        assert_eq!(slots.get(&new), None);
        slots.insert(new, 2, &none);
        assert_eq!(slots.get(&old), Some(&1));
    }
}
