//! The scheduler's limits and policies. Names and defaults are vLLM's.

use serde::{Deserialize, Serialize};

use crate::{
    error::RequestError,
    logic::{
        kv_cache::{Demand, KvCacheConfig, KvKind, KvSpec},
        request::{ids::Micros, media::MultimodalFeature},
        scheduler::request_queue::SchedulingPolicy,
    },
};

/// The settings of one engine's scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// The order in which requests are served.
    pub policy: SchedulingPolicy,
    /// Under the priority policy, a request that waited this long comes before all younger ones.
    pub priority_age_bound: Micros,
    /// Largest number of requests that run at once.
    pub max_num_seqs: usize,
    /// Largest number of tokens that one step computes.
    pub max_num_batched_tokens: usize,
    /// Largest number of tokens of a prompt and its output together.
    pub max_model_len: usize,
    /// Largest number of tokens by which a prompt advances in a step while other requests wait or
    /// run. 0 means no limit.
    pub long_prefill_token_threshold: usize,
    /// Whether a prompt may be computed in parts.
    pub enable_chunked_prefill: bool,
    /// Whether a request is admitted only if all of its tokens fit the free blocks, and not only
    /// its first part.
    pub reserve_full_isl: bool,
    /// Share of all blocks that admission leaves free while other requests run, in `[0, 1)`.
    pub watermark: f64,
    /// While requests run, new ones are admitted at most once in this many steps.
    pub prefill_schedule_interval: u64,
    /// The contents of the model's KV cache.
    pub kv_spec: KvSpec,
    /// Number of blocks in the KV cache, including the null block.
    pub num_blocks: u32,
    /// Whether prompts are looked up and full blocks are registered.
    pub enable_prefix_caching: bool,
    /// Seed of block hashes: vLLM's `PYTHONHASHSEED`. Engines with different seeds share no block
    /// hashes.
    pub hash_seed: Option<String>,
    /// Number of embeddings that one step may encode. See
    /// [`crate::logic::encoder_cache::encoder_budget`].
    pub encoder_budget: usize,
    /// Number of embeddings that the encoder cache holds; 0 if the model takes no media.
    pub encoder_cache_size: usize,
    /// Whether an image or sound must be computed in one step.
    pub disable_chunked_mm_input: bool,
    /// Length of the largest image whose tokens attend to those after them, or of the longest
    /// prompt whose tokens do. One step computes all of them, even a step with a reduced budget. 0
    /// if no token attends to one after it.
    pub largest_whole_item: usize,
    /// Whether a step is planned while the one before is computed. The planned step then waits at
    /// the device.
    pub async_scheduling: bool,
    /// Largest number of adapters whose requests run at once.
    pub max_loras: usize,
    /// Largest number of guessed tokens that a step verifies for one request. 0 means no guesses.
    pub num_lookahead_tokens: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: SchedulingPolicy::Fcfs,
            priority_age_bound: 30_000_000,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: 2048,
            long_prefill_token_threshold: 0,
            enable_chunked_prefill: true,
            reserve_full_isl: true,
            watermark: 0.0,
            prefill_schedule_interval: 1,
            kv_spec: KvSpec::full(1, 16, 1),
            num_blocks: 1025,
            enable_prefix_caching: true,
            hash_seed: None,
            encoder_budget: 0,
            encoder_cache_size: 0,
            disable_chunked_mm_input: false,
            largest_whole_item: 0,
            async_scheduling: false,
            max_loras: 1,
            num_lookahead_tokens: 0,
        }
    }
}

/// A value that no scheduler can work with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {accepted}, got {value}")]
pub struct SchedulerConfigError {
    /// The field of [`SchedulerConfig`].
    pub field: &'static str,
    /// The rejected value.
    pub value: String,
    /// The values that would be accepted.
    pub accepted: String,
}

impl SchedulerConfig {
    /// Rejects values with which requests would wait for ever.
    ///
    /// # Errors
    /// [`SchedulerConfigError`] for the first field with a rejected value.
    pub fn validate(&self) -> Result<(), SchedulerConfigError> {
        let at_least = |field, value: usize, least: usize| match value >= least {
            true => Ok(()),
            false => Err(refuse(field, value, format!("at least {least}"))),
        };
        at_least("max_num_seqs", self.max_num_seqs, 1)?;
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)?;
        if self.max_num_batched_tokens < self.largest_whole_item {
            let wanted = format!(
                "at least {}, because a step computes all tokens of an image of this model",
                self.largest_whole_item
            );
            return Err(refuse("max_num_batched_tokens", self.max_num_batched_tokens, wanted));
        }
        at_least("max_model_len", self.max_model_len, 2)?;
        at_least("kv_spec.block_size", self.kv_spec.block_size, 1)?;
        at_least("num_blocks", self.num_blocks as usize, 2)?;
        self.validate_whole_prompts()?;
        for group in &self.kv_spec.groups {
            if let KvKind::Sliding { window: 0 } | KvKind::ChunkedLocal { chunk: 0 } = group.kind {
                let accepted = "a window of at least 1 token".to_owned();
                return Err(refuse("kv_spec.groups", format!("{:?}", group.kind), accepted));
            }
        }
        if self.prefill_schedule_interval == 0 {
            return Err(refuse("prefill_schedule_interval", 0, "at least 1".into()));
        }
        if !(0.0..1.0).contains(&self.watermark) {
            return Err(refuse("watermark", self.watermark, "a share in [0, 1)".into()));
        }
        if !self.enable_chunked_prefill && self.max_num_batched_tokens < self.max_model_len {
            let wanted = format!(
                "at least max_model_len ({}) while chunked prefill is off",
                self.max_model_len
            );
            let value = self.max_num_batched_tokens;
            return Err(refuse("max_num_batched_tokens", value, wanted));
        }
        Ok(())
    }

    /// Checks whether the items of a prompt can ever be in the encoder cache. Checks also whether
    /// a step has room for the tokens that it must compute together.
    ///
    /// # Errors
    /// [`RequestError::Unencodable`] names the embeddings and the room,
    /// [`RequestError::InvalidParameter`] the tokens.
    pub fn check_encodable(&self, items: &[MultimodalFeature]) -> Result<(), RequestError> {
        let longest = items.iter().map(|item| item.length).max().unwrap_or_default();
        if self.largest_whole_item > 0 && longest > self.largest_whole_item {
            let accepted = format!(
                "at most {} tokens, because they attend to each other: max_num_batched_tokens, or \
                 the sliding window of the model",
                self.largest_whole_item
            );
            return Err(RequestError::invalid("prompt", format!("{longest} tokens"), accepted));
        }
        let (num_embeds, cache_size) = (self.most_embeds_at_once(items), self.encoder_cache_size);
        match num_embeds <= cache_size {
            true => Ok(()),
            false => Err(RequestError::Unencodable { num_embeds, cache_size }),
        }
    }

    /// Returns the number of embeddings that must be in the encoder cache at the same time: those
    /// that all tokens attend to, and beside them the largest other item, or all if prompts are
    /// computed whole, or one item spans others.
    #[must_use]
    pub fn most_embeds_at_once(&self, items: &[MultimodalFeature]) -> usize {
        let embeds = |is_attended: bool| {
            let items = items.iter().filter(move |item| item.is_attended() == is_attended);
            items.map(|item| item.num_embeds)
        };
        let spans_others = items
            .windows(2)
            .any(|pair| !pair[1].is_attended() && pair[1].offset < pair[0].offset + pair[0].length);
        let others = match self.computes_whole_prompts() || spans_others {
            true => embeds(false).sum(),
            false => embeds(false).max().unwrap_or_default(),
        };
        embeds(true).sum::<usize>() + others
    }

    /// Returns whether each prompt is computed in one step. The model then has no KV cache: a token
    /// attends to those after it, so nothing of a part of a prompt could be used.
    #[must_use]
    pub fn computes_whole_prompts(&self) -> bool {
        self.kv_spec.groups.is_empty()
    }

    /// Rejects settings that need a KV cache, if the model has none.
    fn validate_whole_prompts(&self) -> Result<(), SchedulerConfigError> {
        let settings = [
            ("enable_chunked_prefill", self.enable_chunked_prefill),
            ("enable_prefix_caching", self.enable_prefix_caching),
        ];
        let wrong = settings.into_iter().find(|(_, is_on)| *is_on && self.computes_whole_prompts());
        wrong.map_or(Ok(()), |(field, value)| {
            Err(refuse(field, value, "false for a model without a KV cache".to_owned()))
        })
    }

    /// Returns the size of the KV cache that the scheduler plans for.
    #[must_use]
    pub fn kv_cache(&self) -> KvCacheConfig {
        // While a step is computed, the next one may be planned.
        let num_steps = if self.async_scheduling { 2 } else { 1 };
        KvCacheConfig {
            num_blocks: self.num_blocks,
            num_step_tokens: self.max_num_batched_tokens.saturating_mul(num_steps),
            spec: self.kv_spec.clone(),
        }
    }

    /// Checks whether a prompt of this length can ever run. Must be called before the prompt is
    /// accepted.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if the prompt and its first output token do not fit the whole
    /// cache.
    pub fn check_servable(&self, prompt_len: usize) -> Result<(), RequestError> {
        Demand::new(&self.kv_cache()).check_servable(prompt_len)
    }

    /// Checks whether a prompt of this length can ever be pooled, for which no output is computed.
    /// Must be called before the prompt is accepted.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if the prompt does not fit the whole cache.
    pub fn check_poolable(&self, prompt_len: usize) -> Result<(), RequestError> {
        Demand::new(&self.kv_cache()).check_fits(prompt_len)
    }
}

fn refuse(field: &'static str, value: impl ToString, accepted: String) -> SchedulerConfigError {
    SchedulerConfigError { field, value: value.to_string(), accepted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut SchedulerConfig)) -> Result<(), String> {
        let mut config = SchedulerConfig::default();
        change(&mut config);
        config.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn a_prompt_that_one_step_computes_fits_a_step() {
        let config = SchedulerConfig {
            largest_whole_item: 16,
            max_num_batched_tokens: 16,
            encoder_cache_size: 8,
            ..SchedulerConfig::default()
        };
        let item = |offset: usize, length: usize| MultimodalFeature {
            num_embeds: 3,
            ..MultimodalFeature::for_test("a", offset, length)
        };
        assert_eq!(config.most_embeds_at_once(&[item(0, 16), item(5, 3)]), 6);
        assert_eq!(config.most_embeds_at_once(&[item(0, 3), item(5, 3)]), 3);
        assert!(config.check_encodable(&[item(0, 16)]).is_ok());
        let why = config.check_encodable(&[item(0, 17)]).unwrap_err().to_string();
        assert!(why.contains("at most 16 tokens, because they attend to each other"), "{why}");
    }

    #[test]
    fn values_that_would_stop_the_engine_are_refused() {
        assert_eq!(check(|_| ()), Ok(()));
        assert!(check(|c| c.max_num_seqs = 0).is_err());
        assert!(check(|c| c.num_blocks = 1).is_err());
        assert_eq!(check(|c| c.largest_whole_item = 2048), Ok(()));
        assert!(check(|c| c.largest_whole_item = 2049).is_err());
        assert!(check(|c| c.kv_spec.block_size = 0).is_err());
        assert_eq!(
            check(|c| c.kv_spec.groups.clear()),
            Err("enable_chunked_prefill must be false for a model without a KV cache, got true"
                .into())
        );
        let without_cache = |c: &mut SchedulerConfig| {
            c.kv_spec.groups.clear();
            (c.enable_chunked_prefill, c.enable_prefix_caching) = (false, false);
        };
        assert_eq!(check(without_cache), Ok(()));
        let no_window = |c: &mut SchedulerConfig| {
            c.kv_spec.groups[0].kind = KvKind::Sliding { window: 0 };
        };
        assert_eq!(
            check(no_window),
            Err("kv_spec.groups must be a window of at least 1 token, got Sliding { window: 0 }"
                .into())
        );
        assert!(check(|c| c.prefill_schedule_interval = 0).is_err());
        assert_eq!(
            check(|c| c.watermark = 1.0),
            Err("watermark must be a share in [0, 1), got 1".into())
        );
        let whole_prompts = |c: &mut SchedulerConfig| {
            c.enable_chunked_prefill = false;
            c.max_num_batched_tokens = 1024;
        };
        assert_eq!(
            check(whole_prompts),
            Err("max_num_batched_tokens must be at least max_model_len (2048) while chunked \
                 prefill is off, got 1024"
                .into())
        );
    }
}
