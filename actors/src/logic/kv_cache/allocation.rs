//! The messages between scheduler and KV cache manager: plans and their answers. The scheduler
//! knows requests and token counts, and the manager knows blocks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BlockIds, hashes::BlockHash};
use crate::logic::request::ids::{Epoch, RequestId, Step};

/// Operations to execute in order, up to the first that is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocationPlan {
    /// Epoch of the plan.
    pub epoch: Epoch,
    /// The step being planned. It fills the blocks that this plan registers.
    pub step: Step,
    /// Index of the plan within the step, from 0.
    pub round: u32,
    /// The last computed step. Blocks filled by it and by earlier steps are sealed.
    pub completed_step: Option<Step>,
    /// The operations, in order of execution.
    pub ops: Vec<AllocationOp>,
}

/// One operation of the KV cache manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AllocationOp {
    /// Frees a request's blocks.
    Free {
        /// The request.
        request: RequestId,
        /// The hashes of the request's full blocks, if their content cannot be trusted. No request
        /// may hit a block with one of these hashes, even if this request no longer holds it.
        discard: Option<Arc<Vec<BlockHash>>>,
    },
    /// Looks up how much of a prompt can be hit.
    Lookup {
        /// The request.
        request: RequestId,
        /// Hashes of the full blocks of the request's tokens.
        block_hashes: Arc<Vec<BlockHash>>,
        /// Maximum number of hit tokens: all tokens of the request except the last.
        max_tokens: usize,
        /// Whether a tail that the last epoch left for the request counts.
        with_tail: bool,
    },
    /// Makes room for a request's tokens.
    Allocate(AllocateOp),
    /// Lets other free blocks be reused before those that a request will look up. The order of the
    /// free blocks does not outlive a process.
    Touch {
        /// The request.
        request: RequestId,
        /// Hashes of the full blocks of the request's tokens.
        block_hashes: Arc<Vec<BlockHash>>,
        /// As in `Lookup`.
        max_tokens: usize,
    },
    /// Forgets all content that can be hit, if no request holds a block.
    ResetPrefixCache,
}

/// Makes room for tokens, and registers the blocks that they fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocateOp {
    /// The request. It gets a table if it has none.
    pub request: RequestId,
    /// Number of tokens that its table must hold after this step.
    pub num_tokens: usize,
    /// Number of tokens that the lookup just before found for this request; 0 for one that holds
    /// blocks.
    pub num_hit_tokens: usize,
    /// Number of computed tokens from which the request could go on without its blocks: see
    /// [`Demand::settled`](super::Demand::settled). A group frees the blocks that no token from
    /// here on reads.
    pub num_settled_tokens: usize,
    /// Number of tokens that must fit, at least `num_tokens`. Otherwise the operation is refused.
    pub num_tokens_to_fit: usize,
    /// Number of blocks that must stay free beside `num_tokens_to_fit`. Otherwise the operation is
    /// refused.
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
    /// One result for each operation, in order. The first [`AllocationResult::Refused`] is the
    /// last.
    pub results: Vec<AllocationResult>,
    /// Number of free blocks afterwards.
    pub num_free_blocks: usize,
    /// Share of the blocks that requests hold, in `[0, 1]`.
    pub usage: f64,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AllocationResult {
    /// Answers `Free`: done, even if the request held no blocks.
    Freed,
    /// Answers `Lookup`: this many tokens can be hit. The number is a multiple of the block size
    /// unless a tail is included.
    Hit {
        /// Number of tokens.
        num_tokens: usize,
    },
    /// Answers `Allocate`: the blocks appended to the request's table, hit ones first. Null blocks
    /// stand for hit blocks that the group does not read.
    Allocated {
        /// The blocks. Empty if the table had room.
        block_ids: BlockIds,
    },
    /// Answers `Allocate`: there are too few free blocks, and nothing changed.
    Refused,
    /// Answers `Touch`.
    Touched,
    /// Answers `ResetPrefixCache`: whether it was done.
    Reset(bool),
}

/// The reason why a plan was not executed. A stale plan changes nothing. After an invalid one the
/// scheduler or the manager must be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan is of a past epoch.
    #[error("a plan of epoch {} arrived in epoch {}", plan.0, current.0)]
    Stale {
        /// The plan's.
        plan: Epoch,
        /// The manager's.
        current: Epoch,
    },
    /// The plan contradicts an earlier one.
    #[error("request {request}: {what}")]
    Invalid {
        /// The operation's request.
        request: RequestId,
        /// The fault.
        what: &'static str,
    },
}
