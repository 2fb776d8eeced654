//! The port to the model's encoder of media, which runs on a device thread of its own.

use std::sync::Arc;

use super::ExecuteError;
use crate::logic::request::{failure::Failure, media::MultimodalFeature};

/// Encodes media on one device. It lives on the encoder worker's own OS thread.
pub trait EncoderExecutor: Send {
    /// Encodes items and puts the results in the store, where steps find them by identifier. An
    /// item's result must not depend on the other items. Returns the end of each, in order.
    ///
    /// # Errors
    /// [`ExecuteError`] if the whole batch failed. The caller then replaces the executor.
    fn encode(
        &mut self,
        items: &[MultimodalFeature],
    ) -> Result<Vec<Result<(), Failure>>, ExecuteError>;
}

/// Creates executors over the weights of the encoder, and keeps their results. The store outlives
/// each executor. A result follows from the item alone, so one of an abandoned thread is as good as
/// any other.
pub trait EncoderFactory: Send + Sync + 'static {
    /// Returns a new executor. This is called on the device thread.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] if the device is lost.
    fn create(&self) -> Result<Box<dyn EncoderExecutor>, ExecuteError>;

    /// Returns the results in the store: their identifiers and numbers of embeddings.
    fn stored(&self) -> Vec<(Arc<str>, usize)>;

    /// Returns the number of results so far that were not computed, because a client has sent them,
    /// or another engine has stored them.
    fn num_received(&self) -> u64 {
        0
    }

    /// Drops results. Steps that read one at this moment keep it until they end.
    fn remove(&self, identifiers: &[Arc<str>]);
}
