//! All live requests: a slab, so that the lists of a step hold small indices.

use std::{
    collections::BTreeMap,
    ops::{Index, IndexMut},
};

use super::request_state::RequestState;
use crate::logic::ids::RequestId;

/// Where a request's state lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

#[derive(Debug, Clone, Default)]
pub(super) struct RequestTable {
    slots: Vec<Option<RequestState>>,
    vacant: Vec<Slot>,
    by_id: BTreeMap<RequestId, Slot>,
}

impl RequestTable {
    /// Requests that have not ended.
    pub(super) fn num_live(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn find(&self, request: RequestId) -> Option<Slot> {
        self.by_id.get(&request).copied()
    }

    /// The request in this slot, if it is still this one.
    pub(super) fn get(&self, slot: Slot, request: RequestId) -> Option<&RequestState> {
        let state = self.slots.get(slot.0 as usize)?.as_ref();
        state.filter(|state| state.request.id == request)
    }

    /// `make` is given the slot that the state will have.
    pub(super) fn insert(
        &mut self,
        request: RequestId,
        make: impl FnOnce(Slot) -> RequestState,
    ) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        });
        self.slots[slot.0 as usize] = Some(make(slot));
        self.by_id.insert(request, slot);
        slot
    }

    /// The request has ended: it cannot be found any more, its slot stays taken.
    pub(super) fn hide(&mut self, request: RequestId) {
        self.by_id.remove(&request);
    }

    /// Nothing refers to the slot any more.
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
