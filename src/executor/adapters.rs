//! The adapters in memory. They outlive every runner, as the model's weights do.

use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_actors::{
    logic::{
        adapter_slots::{AdapterSlots, AdaptersInUse},
        request::lora::{AdapterFingerprint, LoraRequest},
    },
    ports::{AdapterCheckError, AdapterLoadError, AdapterLoader, Settled},
};

use crate::model::{
    Adapter, AdapterError, AdapterSites,
    adapters::{AdapterFiles, Fingerprint},
};

/// Most loaded adapters that wait for a slot.
const MAX_STAGED: usize = 4;

/// Loads adapters for one model, and keeps those used last.
pub(crate) struct AdapterStore {
    sites: Arc<AdapterSites>,
    max_rank: usize,
    slots: Mutex<AdapterSlots<Arc<Adapter>>>,
    /// Loaded adapters without a slot, the newest last.
    staged: Mutex<Vec<(Arc<LoraRequest>, Arc<Adapter>)>>,
}

/// An adapter that was read and checked.
pub(crate) struct LoadedAdapter {
    pub(crate) fingerprint: AdapterFingerprint,
    adapter: Arc<Adapter>,
}

impl AdapterStore {
    /// Returns an empty store of `capacity` slots for the model with these sites. A module of an
    /// adapter may have a rank of at most `max_rank`.
    pub(crate) fn new(sites: Arc<AdapterSites>, max_rank: usize, capacity: usize) -> Self {
        let (slots, staged) = (Mutex::new(AdapterSlots::new(capacity)), Mutex::default());
        Self { sites, max_rank, slots, staged }
    }

    /// Reads and checks the adapter in the folder `path`. It may block for seconds.
    ///
    /// # Errors
    /// [`AdapterError`] names the file, and the field or tensor at fault.
    pub(crate) fn read(&self, path: &str) -> Result<LoadedAdapter, AdapterError> {
        let files = AdapterFiles::read(path)?;
        let Fingerprint(fingerprint) = files.fingerprint();
        let adapter = Arc::new(files.load(&self.sites, self.max_rank)?);
        tracing::info!(
            path,
            rank = adapter.max_rank(),
            bytes = adapter.size_bytes(),
            "an adapter is loaded"
        );
        Ok(LoadedAdapter { fingerprint: AdapterFingerprint(fingerprint), adapter })
    }

    /// Keeps a loaded adapter until a request needs it, as long as there is room.
    pub(crate) fn stage(&self, request: Arc<LoraRequest>, loaded: LoadedAdapter) {
        let mut staged = self.staged.lock();
        staged.retain(|(known, _)| *known != request);
        staged.push((request, loaded.adapter));
        let surplus = staged.len().saturating_sub(MAX_STAGED);
        staged.drain(..surplus);
    }

    /// Returns an adapter that has a slot.
    pub(super) fn get(&self, request: &LoraRequest) -> Option<Arc<Adapter>> {
        self.slots.lock().get(request).cloned()
    }
}

impl AdapterLoader for AdapterStore {
    fn check(&self, path: &str) -> Result<AdapterFingerprint, AdapterCheckError> {
        let read = self.read(path).map_err(|error| match error {
            AdapterError::NotFound { path } => AdapterCheckError::NotFound { path },
            error => AdapterCheckError::Refused(error.to_string()),
        })?;
        Ok(read.fingerprint)
    }

    fn load(&self, request: &LoraRequest) -> Result<(), AdapterLoadError> {
        let refused = |error: AdapterError| {
            let LoraRequest { name, path, .. } = request;
            AdapterLoadError(format!("adapter '{name}' in {path}: {error}"))
        };
        let loaded = self.read(&request.path).map_err(refused)?;
        if loaded.fingerprint != request.fingerprint {
            let (name, path) = (request.name.clone(), request.path.clone());
            return Err(refused(AdapterError::Changed { name, path }));
        }
        self.stage(Arc::new(request.clone()), loaded);
        Ok(())
    }

    fn settle(
        &self,
        request: &Arc<LoraRequest>,
        in_use: &AdaptersInUse,
        is_forced: bool,
    ) -> Settled {
        let mut slots = self.slots.lock();
        if slots.touch(request) {
            return Settled::Resident;
        }
        let mut staged = self.staged.lock();
        let Some(index) = staged.iter().position(|(known, _)| known == request) else {
            return Settled::Absent;
        };
        if !is_forced && !slots.has_room(in_use) {
            return Settled::Full;
        }
        let (request, adapter) = staged.remove(index);
        drop(staged);
        let evicted = slots.insert(request, adapter, in_use);
        drop(slots);
        for (evicted, _) in evicted {
            tracing::debug!(name = evicted.name, "an adapter gives up its slot");
        }
        Settled::Resident
    }
}

impl std::fmt::Debug for AdapterStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterStore").field("max_rank", &self.max_rank).finish_non_exhaustive()
    }
}
