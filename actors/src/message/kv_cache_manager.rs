//! To the KV cache manager: one plan a step.

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, pings};
use crate::logic::{
    allocation::{Allocation, AllocationPlan},
    house::BlockMap,
};

/// Received by the KV cache manager.
#[derive(Debug)]
pub enum KvCacheManagerMessage {
    /// From the scheduler: allocate, look up and free, in this order. The first plan of an epoch
    /// forgets all but sealed blocks and tails. `None` answers a plan of a past epoch.
    Execute(AllocationPlan, RpcReplyPort<Option<Allocation>>),
    /// From somebody who looks in from outside: what the blocks are. Nothing before the first plan.
    View(RpcReplyPort<Option<BlockMap>>),
    /// From the watchdog.
    Ping,
}

impl Letter for KvCacheManagerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Execute(..) => Edge::SchedulerToKvCache,
            Self::View(_) | Self::Ping => Edge::Timer,
        }
    }

    pings!();
}
