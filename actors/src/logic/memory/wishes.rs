//! The wishes that wait. Small and large ones are kept apart, so that the oldest of each kind is
//! found without a search.

use std::collections::BTreeMap;

use super::{LeaseId, SMALL_WAITING_MAX, Ticket, WAITING_MAX, is_small};

/// The waiting wishes and the bytes of each. A wish is small if its lease will still be small when
/// the wish is granted.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    small: BTreeMap<Ticket, usize>,
    large: BTreeMap<Ticket, usize>,
}

impl Wishes {
    /// Returns the number of wishes.
    pub(super) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Returns whether one more wish may wait, if its lease will hold `total` bytes.
    pub(super) fn has_room(&self, total: usize) -> bool {
        match is_small(total) {
            true => self.small.len() < SMALL_WAITING_MAX,
            false => self.large.len() < WAITING_MAX,
        }
    }

    /// Adds a wish whose lease will hold `total` bytes.
    pub(super) fn insert(&mut self, ticket: Ticket, bytes: usize, total: usize) {
        let wishes = if is_small(total) { &mut self.small } else { &mut self.large };
        wishes.insert(ticket, bytes);
    }

    /// Ends a wish.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.small.remove(&ticket);
        self.large.remove(&ticket);
    }

    /// Ends all wishes of `lease` and returns them.
    pub(super) fn remove_all(&mut self, lease: LeaseId) -> Vec<(Ticket, usize)> {
        let wishes: Vec<_> = self.of(lease).collect();
        wishes.iter().for_each(|&(ticket, _)| self.remove(ticket));
        wishes
    }

    /// Records that `lease` holds `held` bytes now. This can make its wishes small or large.
    pub(super) fn reclassify(&mut self, lease: LeaseId, held: usize) {
        for (ticket, bytes) in self.remove_all(lease) {
            self.insert(ticket, bytes, held.saturating_add(bytes));
        }
    }

    /// Returns whether `lease` has a wish.
    pub(super) fn has(&self, lease: LeaseId) -> bool {
        self.of(lease).next().is_some()
    }

    /// Returns the oldest wish.
    pub(super) fn oldest(&self) -> Option<(Ticket, usize)> {
        let large = self.large.first_key_value().map(|(&ticket, &bytes)| (ticket, bytes));
        self.oldest_small().into_iter().chain(large).min()
    }

    /// Returns the oldest small wish.
    pub(super) fn oldest_small(&self) -> Option<(Ticket, usize)> {
        self.small.first_key_value().map(|(&ticket, &bytes)| (ticket, bytes))
    }

    fn of(&self, lease: LeaseId) -> impl Iterator<Item = (Ticket, usize)> {
        let all = Ticket { lease, number: 0 }..=Ticket { lease, number: u64::MAX };
        let wishes = self.small.range(all.clone()).chain(self.large.range(all));
        wishes.map(|(&ticket, &bytes)| (ticket, bytes))
    }
}
