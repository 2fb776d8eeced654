//! The simulator's model. Its next token is a function of the whole history, so a token that is
//! lost, repeated or changed changes every token after it.

use super::{
    grammar,
    rng::mix,
    vocabulary::{EOS_TOKENS, VOCAB_SIZE},
};
use crate::logic::request::{
    ids::TokenId,
    outputs::{Logprob, Pooled, SampledToken, TokenLogprobs},
    pooling_params::{Dimensions, ModelHeads, PoolingHead, PoolingParams, PoolingTask},
    sampling_params::SamplingParams,
};

/// Hash of a cache salt, an adapter and the tokens so far. Never 0.
pub type Digest = u64;

/// Returns the digest of no tokens. `adapter` is what the adapter adds to the model, or 0.
#[must_use]
pub fn empty_digest(cache_salt: Option<&str>, adapter: u64) -> Digest {
    let salt = cache_salt.unwrap_or_default();
    let start = mix(1 ^ adapter);
    salt.bytes().fold(start, |digest, byte| mix(digest ^ u64::from(byte))) | 1
}

/// Returns the digest with one more token.
#[must_use]
pub fn extend(digest: Digest, token: TokenId) -> Digest {
    mix(digest ^ (u64::from(token) + 1)) | 1
}

/// Number of elements in a pooled row, before a cut.
pub const POOLED_WIDTH: usize = 3;

/// Returns the heads of the model: one that generates, and three that pool.
#[must_use]
pub fn heads() -> ModelHeads {
    let head = |task, is_last_token| PoolingHead {
        task,
        is_last_token,
        width: POOLED_WIDTH,
        dimensions: Dimensions::Any,
        activation: true,
        max_prompt_len: None,
        takes_chunks: task == PoolingTask::Embed,
    };
    let pooling = vec![
        head(PoolingTask::Embed, true),
        head(PoolingTask::Classify, false),
        head(PoolingTask::TokenEmbed, false),
    ];
    ModelHeads { generates: true, num_unscored: 0, pooling }
}

/// Returns the result of pooling. `digests` has one for each token of the prompt, or fewer if some
/// hidden states are missing.
#[must_use]
pub fn pooled(params: &PoolingParams, digests: &[Digest]) -> Pooled {
    let width = params.dimensions.map_or(POOLED_WIDTH, |count| count as usize);
    let row = |digest: Digest| {
        (0..width as u64).map(move |i| (mix(digest ^ mix(i)) % 1_000) as f32 / 500.0 - 1.0)
    };
    let values = match params.task {
        task if task.is_by_token() => digests.iter().flat_map(|&digest| row(digest)).collect(),
        PoolingTask::Classify => row(digests.iter().fold(1, |all, &one| mix(all ^ one))).collect(),
        _ if !params.chunk_ends.is_empty() => {
            let last = params.chunk_ends.iter().filter_map(|end| digests.get(*end as usize - 1));
            last.flat_map(|&digest| row(digest)).collect()
        }
        _ => digests.last().into_iter().flat_map(|&digest| row(digest)).collect(),
    };
    Pooled { values, width }
}

/// The sampler of one choice.
#[derive(Debug, Clone, Copy)]
pub struct Sampler<'a> {
    /// Parameters, as the scheduler has them.
    pub params: &'a SamplingParams,
    /// Seed of the draws of a request that is not greedy.
    pub seed: u64,
}

impl Sampler<'_> {
    /// Returns the token at `position` after a history of `digest`, as output number `num_outputs`
    /// + 1 after `last`.
    #[must_use]
    pub fn sample(
        &self,
        digest: Digest,
        position: usize,
        num_outputs: usize,
        last: Option<TokenId>,
    ) -> SampledToken {
        let key = match self.params.is_greedy() {
            true => 0,
            false => mix(self.seed ^ mix(position as u64)),
        };
        let mut drawn = mix(digest ^ key);
        let mut token_id = (drawn % u64::from(VOCAB_SIZE)) as TokenId;
        while self.is_masked(token_id, num_outputs, last) {
            drawn = mix(drawn);
            token_id = (drawn % u64::from(VOCAB_SIZE)) as TokenId;
        }
        let logprobs = self.params.logprobs.map(|count| logprobs(digest, token_id, count));
        SampledToken { token_id, logprobs }
    }

    /// Returns whether a token is not allowed. Before `min_tokens` only the end of its structure
    /// may stop the output.
    fn is_masked(&self, token: TokenId, num_outputs: usize, last: Option<TokenId>) -> bool {
        if let Some(format) = &self.params.structured_output {
            if !grammar::allows(format, token, num_outputs, last) {
                return true;
            }
            if EOS_TOKENS.contains(&token) {
                return false;
            }
        }
        let stops = (EOS_TOKENS.contains(&token) && !self.params.ignore_eos)
            || self.params.stop_token_ids.contains(&token);
        stops && num_outputs < self.params.min_tokens as usize
    }
}

/// Returns the log-probabilities of the token at a position, then of `count` top tokens.
#[must_use]
pub fn logprobs(digest: Digest, token_id: TokenId, count: u32) -> TokenLogprobs {
    let logprob = |token_id: TokenId, rank: u32| {
        let drawn = mix(digest ^ mix(u64::from(token_id))) % 1_000;
        Logprob { token_id, logprob: -(drawn as f32) / 100.0, rank }
    };
    let top = (0..count).map(|rank| {
        let drawn = mix(digest.wrapping_add(u64::from(rank)));
        logprob((drawn % u64::from(VOCAB_SIZE)) as TokenId, rank + 1)
    });
    std::iter::once(logprob(token_id, 7)).chain(top).collect()
}
