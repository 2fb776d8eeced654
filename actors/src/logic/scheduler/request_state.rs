//! What the scheduler knows of one request.

use std::{ops::Range, sync::Arc};

use super::stop_check::stop_conditions;
use crate::{
    fault::{Bug, planted},
    logic::{
        allocation::{BlockContent, FullBlock},
        block_hash::{BlockHash, extra_keys, hash_block},
        ids::{Step, TokenId},
        request::EngineRequest,
        request_queue::QueueKey,
        stop::StopConditions,
    },
};

/// Where a request stands. One that ended is forgotten as soon as nothing refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// In the queue; also after it was preempted, with the tokens it had.
    Waiting(QueueKey),
    /// Aside, until its grammar is compiled; its place in the queue is kept.
    WaitingForStructuredOutputGrammar(QueueKey),
    /// In the running list; holds blocks.
    Running,
    /// Popped from the queue by the plan in progress, which may not fit.
    Admitting(QueueKey),
    /// Ended, but still in the running list.
    Finished,
}

/// One live request: tokens and counts, no blocks.
#[derive(Debug, Clone)]
pub(super) struct RequestState {
    pub(super) request: Arc<EngineRequest>,
    pub(super) status: Status,
    pub(super) output_token_ids: Vec<TokenId>,
    /// Tokens whose KV is there, or will be once the steps in flight are computed.
    pub(super) num_computed_tokens: usize,
    /// Most tokens that were ever computed: below this, work is done again.
    pub(super) max_computed_tokens: usize,
    /// Blocks that the KV cache manager holds for it.
    pub(super) num_blocks: usize,
    /// So many of them can be hit by others.
    pub(super) num_registered_blocks: usize,
    /// The KV cache manager keeps a tail for it, or may keep one that the last epoch left.
    pub(super) has_tail: bool,
    /// Prompt positions whose log-probabilities were committed; position 0 has none.
    pub(super) num_prompt_logprobs: usize,
    /// The first step since it was admitted: what steps before it computed is not its any more.
    pub(super) first_step: Option<Step>,
    /// Steps in flight that draw a token for it.
    pub(super) num_drawing: usize,
    /// Whether it ran before.
    pub(super) was_scheduled: bool,
    /// Its last row was no number: it is being computed again, without the prefix cache.
    pub(super) is_retried: bool,
    /// Media before this one are done with.
    pub(super) num_passed_features: usize,
    pub(super) stop: StopConditions,
    block_hashes: Arc<Vec<BlockHash>>,
}

impl RequestState {
    pub(super) fn new(
        request: Arc<EngineRequest>,
        output_token_ids: Vec<TokenId>,
        status: Status,
        max_model_len: usize,
    ) -> Self {
        let num_outputs = output_token_ids.len();
        let has_begun = num_outputs > 0;
        // Whoever has an output had all tokens before it computed.
        let max_computed_tokens = match has_begun {
            true => request.num_prompt_tokens() + num_outputs - 1,
            false => 0,
        };
        Self {
            stop: stop_conditions(&request, max_model_len),
            was_scheduled: has_begun,
            has_tail: has_begun,
            request,
            status,
            output_token_ids,
            num_computed_tokens: 0,
            max_computed_tokens,
            num_blocks: 0,
            num_registered_blocks: 0,
            num_prompt_logprobs: 0,
            first_step: None,
            num_drawing: 0,
            is_retried: false,
            num_passed_features: 0,
            block_hashes: Arc::default(),
        }
    }

    /// Tokens of prompt and output so far.
    pub(super) fn num_tokens(&self) -> usize {
        self.request.num_prompt_tokens() + self.output_token_ids.len()
    }

    /// Tokens to compute: those that are there, and those that steps in flight will draw.
    pub(super) fn num_remaining(&self) -> usize {
        (self.num_tokens() + self.num_drawing).saturating_sub(self.num_computed_tokens)
    }

    /// Whether the tokens that steps in flight will draw are the last, whatever they are.
    pub(super) fn will_be_full(&self) -> bool {
        let num_outputs = self.output_token_ids.len() + self.num_drawing;
        let num_tokens = self.num_tokens() + self.num_drawing;
        self.num_drawing > 0
            && (num_outputs >= self.stop.max_tokens || num_tokens >= self.stop.max_model_len)
    }

    /// Whether it may use what others computed. Log-probabilities of a prompt need its logits.
    pub(super) fn reads_prefix_cache(&self) -> bool {
        self.request.params.prompt_logprobs.is_none() && !self.is_retried
    }

    /// It holds no blocks any more, and the worker will hear of it as of a new request.
    pub(super) fn forget_computed(&mut self) {
        self.num_computed_tokens = 0;
        self.num_blocks = 0;
        self.has_tail = false;
        if !planted(Bug::KeepRegistered) {
            self.num_registered_blocks = 0;
        }
        self.num_passed_features = 0;
        self.first_step = None;
        self.num_drawing = 0;
    }

    /// Hashes of all full blocks of its first `num_tokens` tokens; those not known are computed.
    pub(super) fn block_hashes(
        &mut self,
        num_tokens: usize,
        block_size: usize,
        none_hash: &BlockHash,
    ) -> &Arc<Vec<BlockHash>> {
        let num_full = num_tokens / block_size;
        while self.block_hashes.len() < num_full {
            let start = self.block_hashes.len() * block_size;
            let parent = self.block_hashes.last().unwrap_or(none_hash);
            let (features, salt) = (&self.request.mm_features, self.request.cache_salt.as_ref());
            let salt = salt.filter(|_| !planted(Bug::IgnoreSalt));
            let keys = extra_keys(start, block_size, features, salt);
            let hash = match self.request.prompt_token_ids.get(start..start + block_size) {
                Some(tokens) => hash_block(parent, tokens, &keys),
                None => hash_block(parent, &self.tokens(start..start + block_size), &keys),
            };
            // Copies only while a plan that carries the hashes is still somewhere.
            Arc::make_mut(&mut self.block_hashes).push(hash);
        }
        &self.block_hashes
    }

    /// The blocks of `range`, to be registered; with their content for KV events if asked.
    pub(super) fn full_blocks(
        &mut self,
        range: Range<usize>,
        block_size: usize,
        none_hash: &BlockHash,
        with_content: bool,
    ) -> Vec<FullBlock> {
        self.block_hashes(range.end * block_size, block_size, none_hash);
        let full_block = |index: usize| {
            let content =
                with_content.then(|| Box::new(self.content(index * block_size, block_size)));
            FullBlock { hash: self.block_hashes[index], content }
        };
        range.map(full_block).collect()
    }

    fn content(&self, start: usize, block_size: usize) -> BlockContent {
        let (features, salt) = (&self.request.mm_features, self.request.cache_salt.as_ref());
        BlockContent {
            token_ids: self.tokens(start..start + block_size),
            extra_keys: extra_keys(start, block_size, features, salt),
        }
    }

    fn tokens(&self, range: Range<usize>) -> Vec<TokenId> {
        let prompt = self.request.prompt_token_ids.iter();
        let all = prompt.chain(&self.output_token_ids);
        all.skip(range.start).take(range.len()).copied().collect()
    }
}
