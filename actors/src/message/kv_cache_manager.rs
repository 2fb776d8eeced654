//! To the KV cache manager: one plan a step.

use ractor::RpcReplyPort;

use crate::logic::{
    allocation::{Allocation, AllocationPlan},
    ids::Epoch,
};

/// Received by the KV cache manager.
#[derive(Debug)]
pub enum KvCacheManagerMessage {
    /// From the scheduler: allocate, look up and free, in this order. `None` answers a plan
    /// of a past epoch.
    Execute(AllocationPlan, RpcReplyPort<Option<Allocation>>),
    /// From the ledger: a new epoch begins; only sealed blocks survive.
    Recover(Epoch),
}
