//! The simulator's adapters. The result of a load is a function of the name.

use std::sync::Arc;

use parking_lot::Mutex;

use super::rng::mix;
use crate::{
    logic::{
        adapter_slots::{AdapterSlots, AdaptersInUse},
        request::{
            failure::Failure,
            lora::{AdapterFingerprint, LoraRequest},
        },
    },
    ports::{AdapterCheckError, AdapterLoadError, AdapterLoader, Settled},
};

/// The message of an adapter that cannot be loaded.
const BROKEN: &str = "planned: this is no adapter";
/// The beginning of the names of such adapters.
const BROKEN_NAME: &str = "broken";

/// Returns an adapter. One in eight cannot be loaded.
#[must_use]
pub fn adapter(number: u64) -> LoraRequest {
    let kind = if number % 8 == 7 { BROKEN_NAME } else { "good" };
    LoraRequest {
        name: format!("{kind} {number}"),
        path: "/".to_owned(),
        // The versions of one name are different adapters.
        version: (number % 2) as u32,
        fingerprint: AdapterFingerprint::default(),
    }
}

/// Returns the failure of a request with this adapter, if it fails.
#[must_use]
pub fn failure(adapter: &LoraRequest) -> Option<Failure> {
    let is_broken = adapter.name.starts_with(BROKEN_NAME);
    is_broken.then(|| Failure::Adapter(BROKEN.to_owned()))
}

/// Returns what the adapter adds to the model: another continuation of each text.
#[must_use]
pub fn digest(adapter: &LoraRequest) -> u64 {
    let start = mix(u64::from(adapter.version) + 11);
    adapter.name.bytes().fold(start, |digest, byte| mix(digest ^ u64::from(byte)))
}

/// A loader that treats each adapter by its name.
#[derive(Debug)]
pub struct Loader {
    slots: Mutex<AdapterSlots<u64>>,
    staged: Mutex<Vec<LoraRequest>>,
}

impl Loader {
    /// Returns a loader with so many slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { slots: Mutex::new(AdapterSlots::new(capacity)), staged: Mutex::default() }
    }

    /// Returns what an adapter adds to the model, if it has a slot.
    #[must_use]
    pub fn get(&self, adapter: &LoraRequest) -> Option<u64> {
        self.slots.lock().get(adapter).copied()
    }
}

impl AdapterLoader for Loader {
    fn check(&self, _: &str) -> Result<AdapterFingerprint, AdapterCheckError> {
        Ok(AdapterFingerprint::default())
    }

    fn load(&self, adapter: &LoraRequest) -> Result<(), AdapterLoadError> {
        if failure(adapter).is_some() {
            return Err(AdapterLoadError(BROKEN.to_owned()));
        }
        self.staged.lock().push(adapter.clone());
        Ok(())
    }

    fn settle(
        &self,
        adapter: &Arc<LoraRequest>,
        in_use: &AdaptersInUse,
        is_forced: bool,
    ) -> Settled {
        let mut slots = self.slots.lock();
        if slots.touch(adapter) {
            return Settled::Resident;
        }
        let mut staged = self.staged.lock();
        if !staged.contains(adapter) {
            return Settled::Absent;
        }
        if !is_forced && !slots.has_room(in_use) {
            return Settled::Full;
        }
        staged.retain(|known| known != &**adapter);
        slots.insert(Arc::clone(adapter), digest(adapter), in_use);
        Settled::Resident
    }
}
