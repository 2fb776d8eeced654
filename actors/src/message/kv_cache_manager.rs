//! Messages to the KV cache manager: one plan for each step.

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, edge, pings};
use crate::logic::{
    kv_cache::allocation::{Allocation, AllocationPlan},
    observe::BlockMap,
};

/// A message that the KV cache manager receives.
#[derive(Debug)]
pub enum KvCacheManagerMessage {
    /// From the scheduler: allocate, look up and free blocks, in the order of the plan. With the
    /// first plan of an epoch, the manager forgets everything except sealed blocks and tails. The
    /// reply to a plan of a past epoch is `None`.
    Execute(AllocationPlan, RpcReplyPort<Option<Allocation>>),
    /// From an observer outside the engine: return a map of the blocks. The reply before the first
    /// plan is `None`.
    View(RpcReplyPort<Option<BlockMap>>),
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for KvCacheManagerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Execute(..) => edge!(Scheduler -> KvCacheManager),
            Self::View(_) | Self::Ping => Edge::TIMER,
        }
    }

    pings!();
}
