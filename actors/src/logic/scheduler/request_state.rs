//! The scheduler's state of one request.

use std::sync::Arc;

use super::{aside::Resource, outbox::Freed, stop_check::stop_conditions};
use crate::logic::{
    kv_cache::{
        Held,
        hashes::{BlockChain, Content},
    },
    planted::{Bug, planted},
    request::{
        EngineRequest,
        ids::{Step, TokenId},
        work::Work,
    },
    scheduler::request_queue::QueueKey,
    text::stop::StopConditions,
};

/// The status of a request. An ended request is forgotten as soon as nothing refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    /// The request is in the queue. After a preemption it is there again, with its tokens.
    Waiting(QueueKey),
    /// The request waits outside the queue until the resource is ready. Its place in the queue is
    /// kept.
    WaitingFor(Resource, QueueKey),
    /// The request is in the running list and holds blocks.
    Running,
    /// The current plan has taken the request from the queue. The request may not fit.
    Admitting(QueueKey),
    /// The request has ended, but it is still in the running list.
    Finished,
}

/// One live request: its tokens and counts, but not its blocks.
#[derive(Debug, Clone)]
pub(super) struct RequestState {
    pub(super) request: Arc<EngineRequest>,
    pub(super) status: Status,
    pub(super) output_token_ids: Vec<TokenId>,
    /// Number of tokens whose KV exists, or will exist once the steps in flight are computed.
    pub(super) num_computed_tokens: usize,
    /// Largest number of tokens that were ever computed. Tokens below it are computed again.
    pub(super) max_computed_tokens: usize,
    /// The request's blocks at the KV cache manager.
    pub(super) held: Held,
    /// Number of prompt positions whose log-probabilities were committed. Position 0 has none.
    pub(super) num_prompt_logprobs: usize,
    /// The first step since the request was admitted. Results of earlier steps are ignored.
    pub(super) first_step: Option<Step>,
    /// Largest number of tokens that steps in flight sample for the request.
    pub(super) num_drawing: usize,
    /// Number of guesses of steps in flight. `num_computed_tokens` counts them as if they were
    /// right, except those of a model with states. Wrong ones are not computed.
    pub(super) num_guesses: usize,
    /// Number of guesses that the executor asked for with its last result.
    pub(super) num_wanted_guesses: usize,
    /// Whether the request ran before.
    pub(super) was_scheduled: bool,
    /// Whether the request is recomputed without the prefix cache, because its last logits were not
    /// finite.
    pub(super) is_retried: bool,
    /// Number of media whose tokens are all computed.
    pub(super) num_passed_features: usize,
    /// Number of media that plans have reached. Those of them that are not passed are listed for
    /// the encoder cache.
    pub(super) num_wanted_features: usize,
    pub(super) stop: StopConditions,
    chain: BlockChain,
}

impl RequestState {
    /// Returns the state of a request that may have `max_model_len` tokens.
    pub(super) fn new(
        request: Arc<EngineRequest>,
        output_token_ids: Vec<TokenId>,
        status: Status,
        max_model_len: usize,
    ) -> Self {
        let num_outputs = output_token_ids.len();
        let has_begun = num_outputs > 0;
        // A request with output has computed all tokens before it.
        let max_computed_tokens = match has_begun {
            true => request.num_prompt_tokens() + num_outputs - 1,
            false => 0,
        };
        Self {
            stop: stop_conditions(&request, max_model_len),
            was_scheduled: has_begun,
            request,
            status,
            output_token_ids,
            num_computed_tokens: 0,
            max_computed_tokens,
            held: Held::new(has_begun),
            num_prompt_logprobs: 0,
            first_step: None,
            num_drawing: 0,
            num_guesses: 0,
            num_wanted_guesses: 0,
            is_retried: false,
            num_passed_features: 0,
            num_wanted_features: 0,
            chain: BlockChain::default(),
        }
    }

    /// Returns the number of prompt and output tokens so far.
    pub(super) fn num_tokens(&self) -> usize {
        self.request.num_prompt_tokens() + self.output_token_ids.len()
    }

    /// Returns the number of tokens to compute, including tokens that steps in flight will sample.
    pub(super) fn num_remaining(&self) -> usize {
        (self.num_tokens() + self.num_drawing).saturating_sub(self.num_computed_tokens)
    }

    /// Returns whether the tokens that steps in flight will sample reach a length limit and are
    /// therefore the last.
    pub(super) fn will_be_full(&self) -> bool {
        let num_outputs = self.output_token_ids.len() + self.num_drawing;
        let num_tokens = self.num_tokens() + self.num_drawing;
        self.num_drawing > 0
            && (num_outputs >= self.stop.max_tokens || num_tokens >= self.stop.max_model_len)
    }

    /// Returns how many guesses can be right beside the tokens that steps in flight and the next
    /// step draw without guesses. Tokens beyond a length limit have no use.
    pub(super) fn num_guesses_max(&self) -> usize {
        let num_outputs = self.output_token_ids.len() + self.num_drawing + 1;
        let num_tokens = self.num_tokens() + self.num_drawing + 1;
        let left = self.stop.max_tokens.saturating_sub(num_outputs);
        left.min(self.stop.max_model_len.saturating_sub(num_tokens))
    }

    /// Returns whether the request may use blocks that others computed. Log-probabilities of a
    /// prompt need its logits, and some poolings the hidden states of all its tokens.
    pub(super) fn reads_prefix_cache(&self) -> bool {
        let needs_all_tokens = match &self.request.work {
            Work::Generate(params) => params.prompt_logprobs.is_some(),
            Work::Pool(params) => params.needs_all_tokens,
        };
        !self.is_retried && (!needs_all_tokens || planted(Bug::PoolOverHits))
    }

    /// Resets the computed state. The request no longer holds blocks, and it will be sent to the
    /// worker as a new request.
    pub(super) fn forget_computed(&mut self) {
        self.num_computed_tokens = 0;
        self.held.release();
        self.num_passed_features = 0;
        self.num_wanted_features = 0;
        self.first_step = None;
        self.num_drawing = 0;
        self.num_guesses = 0;
        self.num_wanted_guesses = 0;
    }

    /// Returns the request as one that no longer needs its blocks.
    pub(super) fn freed(&self, discard: bool) -> Freed {
        let block_hashes = Arc::clone(self.chain.known());
        Freed { request: self.request.id, block_hashes, discard }
    }

    /// Returns the hashes of the request's blocks, and the content that they name.
    pub(super) fn chain(&mut self) -> (&mut BlockChain, Content<'_>) {
        let content = Content {
            prompt: &self.request.prompt_token_ids,
            output: &self.output_token_ids,
            features: &self.request.mm_features,
            salt: self.request.cache_salt.as_ref(),
            lora: self.request.lora.as_ref(),
        };
        (&mut self.chain, content)
    }
}
