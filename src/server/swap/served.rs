//! The engine that a server serves.

use std::{mem, sync::Arc};

use parking_lot::RwLock;

use crate::engine::Engine;

/// The engine that a server serves now. `POST /swap_model` puts another one in its place. Clones
/// share it.
#[derive(Debug, Clone)]
pub struct ServedEngine(Arc<RwLock<Engine>>);

impl ServedEngine {
    /// Returns the engine that new requests get.
    #[must_use]
    pub fn current(&self) -> Engine {
        self.0.read().clone()
    }

    /// Puts another engine in its place. Returns the one before.
    pub(super) fn replace(&self, engine: Engine) -> Engine {
        mem::replace(&mut *self.0.write(), engine)
    }
}

impl From<Engine> for ServedEngine {
    fn from(engine: Engine) -> Self {
        Self(Arc::new(RwLock::new(engine)))
    }
}
