//! All live requests, in a slab, so that the lists of a step hold small indices.

use std::{
    collections::BTreeMap,
    ops::{Index, IndexMut},
};

use super::request_state::RequestState;
use crate::logic::request::ids::RequestId;

/// The place of a request's state in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

#[derive(Debug, Clone, Default)]
pub(super) struct RequestTable {
    slots: Vec<Option<RequestState>>,
    vacant: Vec<Slot>,
    by_id: BTreeMap<RequestId, Slot>,
    /// Number of requests in `by_id` that have an adapter.
    num_adapted: usize,
}

impl RequestTable {
    /// Returns the number of requests that have not ended.
    pub(super) fn num_live(&self) -> usize {
        self.by_id.len()
    }

    /// Returns whether a request that has not ended has an adapter.
    pub(super) fn has_adapters(&self) -> bool {
        self.num_adapted > 0
    }

    /// Returns the requests that have not ended, by their ids.
    pub(super) fn live(&self) -> impl Iterator<Item = &RequestState> {
        self.by_id.values().filter_map(|slot| self.slots.get(slot.0 as usize)?.as_ref())
    }

    pub(super) fn find(&self, request: RequestId) -> Option<Slot> {
        self.by_id.get(&request).copied()
    }

    /// Returns the state in this slot, if it still belongs to `request`.
    pub(super) fn get(&self, slot: Slot, request: RequestId) -> Option<&RequestState> {
        let state = self.slots.get(slot.0 as usize)?.as_ref();
        state.filter(|state| state.request.id == request)
    }

    /// Inserts the state that `make` returns. `make` receives the slot of the new state.
    pub(super) fn insert(
        &mut self,
        request: RequestId,
        make: impl FnOnce(Slot) -> RequestState,
    ) -> Slot {
        let slot = self.next_slot();
        let state = make(slot);
        self.num_adapted += usize::from(state.request.lora.is_some());
        self.slots[slot.0 as usize] = Some(state);
        self.by_id.insert(request, slot);
        slot
    }

    /// Returns a slot that no request has.
    pub(super) fn next_slot(&mut self) -> Slot {
        self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        })
    }

    /// Hides a request that has ended. It can no longer be found, but its slot stays in use.
    pub(super) fn hide(&mut self, request: RequestId) {
        let state =
            self.by_id.remove(&request).and_then(|slot| self.slots[slot.0 as usize].as_ref());
        if state.is_some_and(|state| state.request.lora.is_some()) {
            self.num_adapted -= 1;
        }
    }

    /// Releases a slot that nothing refers to.
    pub(super) fn release(&mut self, slot: Slot) {
        self.slots[slot.0 as usize] = None;
        self.vacant.push(slot);
    }
}

impl Index<Slot> for RequestTable {
    type Output = RequestState;

    fn index(&self, slot: Slot) -> &RequestState {
        match &self.slots[slot.0 as usize] {
            Some(state) => state,
            None => unreachable!("{slot:?} was released while a list still held it"),
        }
    }
}

impl IndexMut<Slot> for RequestTable {
    fn index_mut(&mut self, slot: Slot) -> &mut RequestState {
        match &mut self.slots[slot.0 as usize] {
            Some(state) => state,
            None => unreachable!("{slot:?} was released while a list still held it"),
        }
    }
}
