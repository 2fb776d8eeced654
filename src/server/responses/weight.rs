//! The stored bytes of a response, in the store and in the memory for requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::api::Lease;

/// Bytes that count towards the store's limit until they are dropped.
pub(super) struct Weight {
    bytes: AtomicUsize,
    total: Arc<AtomicUsize>,
    lease: Lease,
}

impl Weight {
    /// Returns a weight of zero bytes that counts towards `total`.
    pub(super) fn new(total: Arc<AtomicUsize>, lease: Lease) -> Self {
        Self { bytes: AtomicUsize::new(0), total, lease }
    }

    /// Returns another weight of `bytes`. It takes the memory of this one first.
    pub(super) fn another(&self, bytes: usize) -> Self {
        let weight = Self::new(self.total.clone(), self.lease.budget().lease());
        weight.set(bytes, Some(&self.lease));
        weight
    }

    /// Changes the weight to `bytes`. Missing memory comes first from `request`. The store's limit,
    /// which is a part of the memory for requests, bounds the rest.
    pub(super) fn set(&self, bytes: usize, request: Option<&Lease>) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
        self.lease.set(bytes, request);
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}
