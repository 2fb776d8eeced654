//! News that other actors must get: the KV cache manager with the next plan, the worker with the
//! next output.

use crate::logic::request::ids::RequestId;

/// The news that the scheduler has not sent yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    /// Requests whose blocks are freed by the next plan made when no step in flight contains them.
    /// The flag says whether the content is discarded.
    pub(super) frees: Vec<(RequestId, bool)>,
    /// Reported in the next output.
    pub(super) finished: Vec<RequestId>,
    /// Reported in the next output.
    pub(super) preempted: Vec<RequestId>,
    /// Set while a reset is requested and not done. `true` preempts running requests for it.
    pub(super) reset_requested: Option<bool>,
    /// Whether the KV cache manager has not received a plan of this epoch yet.
    pub(super) is_new_epoch: bool,
}

impl Outbox {
    /// Returns whether another actor must learn something.
    pub(super) fn has_news(&self) -> bool {
        !self.frees.is_empty()
            || !self.finished.is_empty()
            || !self.preempted.is_empty()
            || self.reset_requested.is_some()
            || self.is_new_epoch
    }
}
