//! The vocabulary between scheduler and KV cache manager: plans and their answers. The scheduler
//! knows requests and token counts, and the manager knows blocks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BlockIds, hashes::BlockHash};
use crate::logic::request::ids::{Epoch, RequestId, Step};

/// Operations to execute in order, up to the first that is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocationPlan {
    /// The epoch it was made in.
    pub epoch: Epoch,
    /// The step that is being planned: blocks filled by this plan are filled in it.
    pub step: Step,
    /// Which plan of the step this is, from 0.
    pub round: u32,
    /// Every step up to this one has been computed: the blocks that it filled are sealed.
    pub completed_step: Option<Step>,
    /// The operations, in the order in which they are executed.
    pub ops: Vec<AllocationOp>,
}

/// One thing for the KV cache manager to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AllocationOp {
    /// Frees a request's blocks.
    Free {
        /// The request.
        request: RequestId,
        /// Their content is not to be trusted: no request may hit it.
        discard: bool,
    },
    /// How much of a prompt can be hit?
    Lookup {
        /// Whose.
        request: RequestId,
        /// Hashes of the full blocks of the request's tokens.
        block_hashes: Arc<Vec<BlockHash>>,
        /// Not more tokens than these: all that it has but the last.
        max_tokens: usize,
        /// Whether the tail that the last epoch may have left it counts.
        with_tail: bool,
    },
    /// Make room for a request's tokens.
    Allocate(AllocateOp),
    /// Forget what can be hit, if no request holds a block.
    ResetPrefixCache,
}

/// Make room for tokens, and register the blocks that they fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocateOp {
    /// Whose; it gets a table if it has none.
    pub request: RequestId,
    /// Tokens that its table must hold after this step.
    pub num_tokens: usize,
    /// The hit that the lookup just before found for this request; 0 for one that holds blocks.
    pub num_hit_tokens: usize,
    /// Refuse unless this many tokens would fit; `num_tokens` or more.
    pub num_tokens_to_fit: usize,
    /// Refuse unless this many blocks would stay free beside `num_tokens_to_fit`.
    pub spare_blocks: usize,
    /// Hashes of the blocks that this step fills. They follow the blocks registered or hit before.
    pub full_blocks: Vec<BlockHash>,
    /// Whether this step computes all tokens that the request has.
    pub catches_up: bool,
}

/// The answer to an [`AllocationPlan`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// The plan's.
    pub epoch: Epoch,
    /// The plan's.
    pub step: Step,
    /// The plan's.
    pub round: u32,
    /// One an operation, in order; ends with the first [`AllocationResult::Refused`].
    pub results: Vec<AllocationResult>,
    /// Blocks free afterwards.
    pub num_free_blocks: usize,
    /// Share of the blocks that requests hold, in `[0, 1]`.
    pub usage: f64,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AllocationResult {
    /// To `Free`: done, also if the request held nothing.
    Freed,
    /// To `Lookup`: this many tokens can be hit; a multiple of the block size unless a tail is
    /// among them.
    Hit {
        /// Tokens.
        num_tokens: usize,
    },
    /// To `Allocate`: the blocks appended to the request's table, hit ones first.
    Allocated {
        /// Empty when the table had room.
        block_ids: BlockIds,
    },
    /// To `Allocate`: there are too few free blocks; nothing changed.
    Refused,
    /// To `ResetPrefixCache`: whether it was done.
    Reset(bool),
}

/// Why a plan was not executed; nothing changed, or the manager must be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It comes from a dead incarnation of the core.
    #[error("a plan of epoch {} arrived in epoch {}", plan.0, current.0)]
    Stale {
        /// The plan's.
        plan: Epoch,
        /// The manager's.
        current: Epoch,
    },
    /// It contradicts what was planned before.
    #[error("request {request}: {what}")]
    Invalid {
        /// The operation's request.
        request: RequestId,
        /// The fault.
        what: &'static str,
    },
}
