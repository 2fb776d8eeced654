//! To the KV cache manager: one plan a step.

use ractor::RpcReplyPort;

use crate::logic::{
    allocation::{Allocation, AllocationPlan},
    ids::Epoch,
};

/// Received by the KV cache manager.
#[derive(Debug)]
pub enum KvCacheManagerMessage {
    /// From the scheduler: allocate, look up and free, in this order. No answer is given to a plan
    /// of another epoch.
    Execute(AllocationPlan, RpcReplyPort<Allocation>),
    /// From the scheduler: forget all cached prefixes. Answers whether that was possible.
    ResetPrefixCache(RpcReplyPort<bool>),
    /// From the ledger: a new epoch begins; only sealed blocks survive.
    Recover(Epoch),
}
