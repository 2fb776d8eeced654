//! News that other actors must get: the KV cache manager with the next plan, the worker with the
//! next output.

use std::sync::Arc;

use crate::logic::{
    kv_cache::{allocation::AllocationOp, hashes::BlockHash},
    request::ids::RequestId,
};

/// The news that the scheduler has not sent yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox {
    /// Requests whose blocks are freed by the next plan made when no step in flight contains them.
    pub(super) frees: Vec<Freed>,
    /// Reported in the next output.
    pub(super) finished: Vec<RequestId>,
    /// Reported in the next output.
    pub(super) preempted: Vec<RequestId>,
    /// Set while a reset is requested and not done. `true` preempts running requests for it.
    pub(super) reset_requested: Option<bool>,
    /// Whether the KV cache manager has not received a plan of this epoch yet.
    pub(super) is_new_epoch: bool,
    /// Requests of the last epoch whose blocks the first plan touches, those to reuse last at the
    /// end.
    pub(super) resumed: Vec<RequestId>,
}

/// A request that no longer needs its blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Freed {
    pub(super) request: RequestId,
    /// The hashes of its full blocks. Empty if the content can no longer turn out to be wrong.
    pub(super) block_hashes: Arc<Vec<BlockHash>>,
    /// Whether the content cannot be trusted.
    pub(super) discard: bool,
}

impl Freed {
    /// Returns the operation that frees the blocks.
    pub(super) fn op(&self) -> AllocationOp {
        let discard = self.discard.then(|| Arc::clone(&self.block_hashes));
        AllocationOp::Free { request: self.request, discard }
    }
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
