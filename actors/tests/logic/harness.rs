//! A scheduler and a KV cache manager without actors, with a model whose tokens the test chooses.

use std::{collections::BTreeMap, sync::Arc};

use playhouse_actors::logic::{
    encoder_cache::EncoderCache,
    kv_cache::KvCacheManager,
    request::{
        EngineRequest, FinishReason,
        failure::Failure,
        ids::{BlockId, Micros, RequestId, TokenId},
        outputs::{Commit, DraftCounts, RequestOutput, SampledToken, StepOutput},
    },
    scheduler::{Scheduled, Scheduler, SchedulerConfig, driver::schedule, output::SchedulerOutput},
};

/// Scheduled tokens by request.
pub(crate) type Tokens = BTreeMap<u64, usize>;

pub(crate) struct Harness {
    pub(crate) scheduler: Scheduler,
    pub(crate) kv_cache: KvCacheManager,
    pub(crate) encoder_cache: EncoderCache,
    pub(crate) now: Micros,
    /// The step in flight, or the last one.
    pub(crate) last: Scheduled,
    pub(crate) commits: Vec<Commit>,
}

/// Returns a configuration whose limits a test does not reach, unless it sets them.
pub(crate) fn roomy() -> SchedulerConfig {
    SchedulerConfig {
        max_num_batched_tokens: 8192,
        max_model_len: 8192,
        num_blocks: 10_000,
        ..SchedulerConfig::default()
    }
}

/// Returns a request that runs until a test ends it. Requests arrive in order of their ids.
pub(crate) fn request(id: u64, prompt: impl IntoIterator<Item = TokenId>) -> EngineRequest {
    let mut request = EngineRequest { arrival: id, ..EngineRequest::for_test(id, prompt) };
    request.sampling_mut().max_tokens = 1_000;
    request.sampling_mut().ignore_eos = true;
    request
}

/// Returns a prompt that shares no block with the prompts of other ids.
pub(crate) fn own_prompt(id: u64, len: usize) -> Vec<TokenId> {
    vec![1_000 + id as TokenId; len]
}

/// Returns `{id: tokens, …}`, as the behaviour notes write it.
pub(crate) fn tokens<const N: usize>(expected: [(u64, usize); N]) -> Tokens {
    Tokens::from(expected)
}

impl Harness {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        config.validate().unwrap();
        let kv_cache = KvCacheManager::new(&config.kv_cache());
        let encoder_cache = EncoderCache::new(0, config.encoder_cache_size, config.encoder_budget);
        let scheduler = Scheduler::new(config);
        let (last, commits) = (Scheduled::default(), Vec::new());
        Self { scheduler, kv_cache, encoder_cache, now: 0, last, commits }
    }

    pub(crate) fn add(&mut self, request: EngineRequest) {
        assert!(self.scheduler.add(Arc::new(request)));
    }

    /// Adds requests with prompts of these lengths that share nothing. Their ids begin at 0.
    pub(crate) fn add_all(&mut self, lengths: &[usize]) {
        for (id, &len) in (0..).zip(lengths) {
            self.add(request(id, own_prompt(id, len)));
        }
    }

    /// Plans a step and returns the scheduled tokens.
    pub(crate) fn plan(&mut self) -> Tokens {
        self.last = schedule(&mut self.scheduler, &mut self.kv_cache, self.now).unwrap();
        let scheduled = self.last.output.num_scheduled_tokens();
        scheduled.map(|(request, num_tokens)| (request.0, num_tokens)).collect()
    }

    /// Computes the planned step: each request that has all its tokens computed gets `token`.
    pub(crate) fn compute(&mut self, token: TokenId) -> Vec<Commit> {
        self.compute_with(|_| token)
    }

    pub(crate) fn compute_with(&mut self, token: impl Fn(u64) -> TokenId) -> Vec<Commit> {
        let output = answer(&self.last.output, |request| vec![token(request.0)]);
        let commits = self.scheduler.update_from_output(output, self.now);
        self.commits.extend(commits.clone());
        commits
    }

    /// Plans and computes a step and returns the scheduled tokens.
    pub(crate) fn step(&mut self) -> Tokens {
        let scheduled = self.plan();
        self.compute(0);
        scheduled
    }

    /// Lets the encoder cache take the scheduler's list, and encode one batch if there is one.
    /// Returns the encoded items.
    pub(crate) fn encode(&mut self) -> Vec<String> {
        self.encode_with(|_| Ok(()))
    }

    pub(crate) fn encode_with(
        &mut self,
        encoded: impl Fn(&str) -> Result<(), Failure>,
    ) -> Vec<String> {
        if let Some(needs) = self.scheduler.take_encoder_needs() {
            assert!(self.encoder_cache.set_needs(&needs));
        }
        let Some(batch) = self.encoder_cache.next_batch() else {
            self.commits.extend(self.scheduler.encoded(self.encoder_cache.answer()));
            return Vec::new();
        };
        let items = batch.items.iter().map(|item| &item.identifier);
        let ends = items.map(|item| (Arc::clone(item), encoded(item))).collect();
        assert!(self.encoder_cache.finish(batch.manager, batch.number, ends));
        self.commits.extend(self.scheduler.encoded(self.encoder_cache.answer()));
        batch.items.iter().map(|item| item.identifier.to_string()).collect()
    }

    /// Ends requests, so that their blocks can be freed.
    pub(crate) fn finish(&mut self, ids: &[u64]) -> Vec<u64> {
        let ids: Vec<RequestId> = ids.iter().map(|&id| RequestId(id)).collect();
        self.scheduler.finish(&ids).into_iter().map(|id| id.0).collect()
    }

    pub(crate) fn blocks(&self, id: u64) -> &[BlockId] {
        self.kv_cache.block_ids(RequestId(id)).map(|blocks| blocks.group(0)).unwrap_or_default()
    }

    pub(crate) fn free_queue(&self) -> Vec<BlockId> {
        self.kv_cache.pool().free_block_ids().collect()
    }

    /// Returns the tokens that a request in `scheduled_new` of the last step took from the prefix
    /// cache.
    pub(crate) fn hits(&self, id: u64) -> usize {
        let new = self.last.output.scheduled_new.iter();
        let mut matching = new.filter(|data| data.request.id.0 == id);
        matching.next().unwrap().num_computed_tokens
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        self.scheduler.running().map(|id| id.0).collect()
    }

    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.scheduler.waiting_reasons().into_iter().map(|(id, _)| id.0).collect()
    }

    pub(crate) fn finish_reason(&self, id: u64) -> Option<FinishReason> {
        let mut ends = self.commits.iter().filter(|commit| commit.request.0 == id);
        ends.find_map(|commit| commit.finish.clone())
    }

    pub(crate) fn output(&self, id: u64) -> Vec<TokenId> {
        let own = self.commits.iter().filter(|commit| commit.request.0 == id);
        own.flat_map(|commit| commit.produced.tokens().iter().map(|token| token.token_id)).collect()
    }
}

/// Returns the answer of a worker that samples for every row. The scheduler knows which rows are
/// partial.
pub(crate) fn answer(
    step: &SchedulerOutput,
    sample: impl Fn(RequestId) -> Vec<TokenId>,
) -> StepOutput {
    let outputs = step.num_scheduled_tokens().map(|(request, _)| {
        let tokens = sample(request).into_iter();
        let produced = tokens.map(|token_id| SampledToken { token_id, logprobs: None }).collect();
        RequestOutput {
            request,
            produced,
            prompt_logprobs: None,
            drafts: DraftCounts::default(),
            failure: None,
        }
    });
    StepOutput { epoch: step.epoch, step: step.step, outputs: outputs.collect() }
}
