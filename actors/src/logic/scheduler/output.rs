//! The step that the scheduler sends to the worker. Block ids are opaque here: the KV cache manager
//! assigns them, the worker uses them, and the scheduler only forwards them.

use std::{ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::logic::{
    kv_cache::BlockIds,
    planted::{Bug, planted},
    request::{
        EngineRequest,
        ids::{Epoch, RequestId, Step, TokenId},
    },
};

/// The work of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerOutput {
    /// Epoch in which it was planned.
    pub epoch: Epoch,
    /// Number of the step. Steps that compute nothing are counted too.
    pub step: Step,
    /// Requests that the worker has no state of: new ones, and ones resumed after preemption.
    pub scheduled_new: Vec<NewRequestData>,
    /// Requests that the worker knows.
    pub scheduled_cached: Vec<CachedRequestData>,
    /// Sum of all `num_scheduled_tokens`.
    pub total_num_scheduled_tokens: usize,
    /// Requests that ended since the last step. The worker drops their state. A request appears
    /// here once.
    pub finished: Vec<RequestId>,
    /// Requests preempted in this step. The worker drops their state. One that resumes at once is
    /// also in `scheduled_new`, so `finished` and `preempted` are handled first.
    pub preempted: Vec<RequestId>,
}

/// All data that the worker needs to begin or resume a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRequestData {
    /// The request.
    pub request: Arc<EngineRequest>,
    /// Tokens generated so far. Not empty for a resumed or replayed request.
    pub output_token_ids: Vec<TokenId>,
    /// Its block table for `num_computed_tokens + num_scheduled_tokens` tokens.
    pub block_ids: BlockIds,
    /// Number of tokens whose KV exists already.
    pub num_computed_tokens: usize,
    /// Number of tokens to compute now, at least 1.
    pub num_scheduled_tokens: usize,
}

/// The changes of a request that the worker knows since the last step. They do not contain the
/// tokens that the worker drew. The worker appends them itself, maybe before the scheduler receives
/// them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedRequestData {
    /// The request.
    pub request: RequestId,
    /// Blocks appended to its table.
    pub new_block_ids: BlockIds,
    /// Number of tokens whose KV exists already. It counts the guesses of steps in flight, as if
    /// all of them were right. See [`CachedRequestData::certain_tokens`].
    pub num_computed_tokens: usize,
    /// Number of tokens to compute now, at least 1.
    pub num_scheduled_tokens: usize,
    /// How many of `num_scheduled_tokens` are places for guesses. The executor fills any number of
    /// them, after the request's last token. In a model with states, some of the other places are
    /// for guesses of the step before. They stay empty if these were wrong.
    pub num_lookahead_tokens: usize,
}

impl CachedRequestData {
    /// Returns the positions to compute without the guesses. `num_computed` is the number of tokens
    /// that the executor has computed, and `num_known` the number of all. They are smaller than the
    /// plan's if guesses were wrong.
    #[must_use]
    pub fn certain_tokens(&self, num_computed: usize, num_known: usize) -> Range<usize> {
        let start = match planted(Bug::KeepRejectedKv) {
            true => self.num_computed_tokens,
            false => self.num_computed_tokens.min(num_computed),
        };
        let end = start + self.num_scheduled_tokens.saturating_sub(self.num_lookahead_tokens);
        start..end.min(num_known)
    }
}

impl SchedulerOutput {
    /// Returns whether the model has nothing to compute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total_num_scheduled_tokens == 0
    }

    /// Returns whether the worker must receive it, to compute tokens or to drop state.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let forgets = !self.finished.is_empty() || !self.preempted.is_empty();
        !self.is_empty() || forgets
    }

    /// Returns the scheduled requests with their numbers of tokens: new ones first, then cached
    /// ones.
    pub fn num_scheduled_tokens(&self) -> impl Iterator<Item = (RequestId, usize)> + '_ {
        let new =
            self.scheduled_new.iter().map(|data| (data.request.id, data.num_scheduled_tokens));
        let cached = self.scheduled_cached.iter();
        new.chain(cached.map(|data| (data.request, data.num_scheduled_tokens)))
    }

    /// Returns the scheduled requests with the number of their tokens that are computed after the
    /// step, if all guesses are right.
    pub fn num_tokens_after(&self) -> impl Iterator<Item = (RequestId, usize)> + '_ {
        let computed = self.scheduled_new.iter().map(|data| data.num_computed_tokens);
        let computed = computed.chain(self.scheduled_cached.iter().map(|d| d.num_computed_tokens));
        let scheduled = self.num_scheduled_tokens();
        scheduled.zip(computed).map(|((request, scheduled), before)| (request, before + scheduled))
    }
}
