//! The step that the scheduler sends to the worker. Block ids are opaque here: the KV
//! cache manager assigns them, the worker uses them, the scheduler only passes them on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logic::{
    kv_cache::BlockIds,
    request::{
        EngineRequest,
        ids::{Epoch, RequestId, Step, TokenId},
    },
};

/// One step's work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerOutput {
    /// The epoch it was planned in.
    pub epoch: Epoch,
    /// Counts every call of the scheduler, also those that plan nothing.
    pub step: Step,
    /// Requests that the worker holds no state of: new ones, and ones resumed after preemption.
    pub scheduled_new: Vec<NewRequestData>,
    /// Requests that the worker knows.
    pub scheduled_cached: Vec<CachedRequestData>,
    /// Sum of all `num_scheduled_tokens`.
    pub total_num_scheduled_tokens: usize,
    /// Requests that ended since the last step: the worker drops their state. A request appears
    /// here once.
    pub finished: Vec<RequestId>,
    /// Requests preempted in this step: the worker drops their state. One that comes back at once
    /// stands in `scheduled_new` as well, so `finished` and `preempted` are dealt with first.
    pub preempted: Vec<RequestId>,
    /// Images and sounds to encode before the model runs.
    pub scheduled_encoder_inputs: Vec<EncoderInputs>,
    /// Content hashes of encoder outputs to drop, before anything is encoded.
    pub freed_encoder_outputs: Vec<Arc<str>>,
}

/// The media to encode for one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EncoderInputs {
    /// The request.
    pub request: RequestId,
    /// Indices into its `mm_features`.
    pub features: Vec<usize>,
}

/// All that the worker needs to begin, or begin again, with a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRequestData {
    /// The request.
    pub request: Arc<EngineRequest>,
    /// Tokens generated so far; not empty for a resumed or replayed request.
    pub output_token_ids: Vec<TokenId>,
    /// Its block table so far, for `num_computed_tokens + num_scheduled_tokens` tokens.
    pub block_ids: BlockIds,
    /// Tokens whose KV is there already.
    pub num_computed_tokens: usize,
    /// Tokens to compute now, at least 1.
    pub num_scheduled_tokens: usize,
}

/// The changes since the last step of a request that the worker knows. They do not contain the
/// tokens that the worker drew: it appends them itself, maybe before the scheduler hears of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedRequestData {
    /// The request.
    pub request: RequestId,
    /// Blocks appended to its table.
    pub new_block_ids: BlockIds,
    /// Tokens whose KV is there already.
    pub num_computed_tokens: usize,
    /// Tokens to compute now, at least 1.
    pub num_scheduled_tokens: usize,
}

impl SchedulerOutput {
    /// Whether there is nothing for the model to compute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total_num_scheduled_tokens == 0
    }

    /// Whether the worker must see it: there is something to compute, or to forget.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let forgets = !self.finished.is_empty() || !self.preempted.is_empty();
        !self.is_empty() || forgets || !self.freed_encoder_outputs.is_empty()
    }

    /// Requests scheduled with their number of tokens: new ones first, then cached ones.
    pub fn num_scheduled_tokens(&self) -> impl Iterator<Item = (RequestId, usize)> + '_ {
        let new =
            self.scheduled_new.iter().map(|data| (data.request.id, data.num_scheduled_tokens));
        let cached = self.scheduled_cached.iter();
        new.chain(cached.map(|data| (data.request, data.num_scheduled_tokens)))
    }

    /// Requests scheduled with the number of their tokens that are computed once the step is done.
    pub fn num_tokens_after(&self) -> impl Iterator<Item = (RequestId, usize)> + '_ {
        let computed = self.scheduled_new.iter().map(|data| data.num_computed_tokens);
        let computed = computed.chain(self.scheduled_cached.iter().map(|d| d.num_computed_tokens));
        let scheduled = self.num_scheduled_tokens();
        scheduled.zip(computed).map(|((request, scheduled), before)| (request, before + scheduled))
    }
}
