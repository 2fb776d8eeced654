//! The port to adapters: their weights, which outlive every actor.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logic::{
    adapter_slots::AdaptersInUse,
    request::lora::{AdapterFingerprint, LoraRequest},
};

/// Loads adapters and keeps them. Executors find them there by the same [`LoraRequest`].
pub trait AdapterLoader: Send + Sync + 'static {
    /// Reads and checks the adapter in the folder `path`, and names its content. This may block for
    /// seconds.
    ///
    /// # Errors
    /// [`AdapterCheckError`] if the adapter cannot be used. The client may see the text.
    fn check(&self, path: &str) -> Result<AdapterFingerprint, AdapterCheckError>;

    /// Reads an adapter's files and prepares its weights, unless it has them. This may block for
    /// seconds, so it is called on threads of its own. The result lies ready for
    /// [`AdapterLoader::settle`].
    ///
    /// # Errors
    /// [`AdapterLoadError`] if the adapter cannot be used. The client may see the text.
    fn load(&self, adapter: &LoraRequest) -> Result<(), AdapterLoadError>;

    /// Gives a loaded adapter a slot, from which executors take it, and marks it as used. Adapters
    /// in use keep their slots. If they have all slots, the answer is [`Settled::Full`], unless
    /// `is_forced`. It must not block.
    fn settle(
        &self,
        adapter: &Arc<LoraRequest>,
        in_use: &AdaptersInUse,
        is_forced: bool,
    ) -> Settled;
}

/// The state of an adapter after [`AdapterLoader::settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It has a slot.
    Resident,
    /// It is not loaded.
    Absent,
    /// It is loaded, but all slots are in use.
    Full,
}

/// The reason why an adapter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdapterLoadError(pub String);

/// The reason why the files of an adapter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AdapterCheckError {
    /// There is no adapter at the path.
    #[error("No adapter found for {path}")]
    NotFound {
        /// The path, as it was given.
        path: String,
    },
    /// The adapter does not fit, for this reason.
    #[error("{0}")]
    Refused(String),
}
