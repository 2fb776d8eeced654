//! From rows of logits to tokens and log-probabilities.

use playhouse_actors::logic::{
    outputs::{Logprob, SampledToken, TokenLogprobs},
    request::EngineRequest,
};
use playhouse_kernels::sampling::{
    self, LogprobRow, SampleError, SamplingRow, SamplingScratch, logprob_row,
};

use super::batch::Sequence;
use crate::grammar::TokenMask;

/// Draws tokens. Holds buffers only: every draw is a function of its row and its request.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    scratch: SamplingScratch,
}

impl Sampler {
    /// The token that follows `sequence`, one of `mask` if there is one; `logits` is `[vocab]` and
    /// is overwritten.
    ///
    /// # Errors
    /// [`SampleError`] when the row holds what is no number, or leaves no token.
    pub(super) fn sample(
        &mut self,
        logits: &mut [f32],
        sequence: &Sequence,
        mask: Option<&TokenMask>,
    ) -> Result<SampledToken, SampleError> {
        let stop_token_ids = stop_token_ids(&sequence.request);
        let token_bitmask = mask.map(TokenMask::words);
        let row = SamplingRow { token_bitmask, ..sampling_row(sequence, &stop_token_ids) };
        let sampled = sampling::sample(logits, &row, &mut self.scratch)?;
        Ok(SampledToken { token_id: sampled.token_id, logprobs: sampled.logprobs.map(logprobs) })
    }
}

/// Log-probabilities of a prompt token and the `k` likeliest; `logits` is `[vocab]`.
pub(super) fn prompt_logprobs(logits: &[f32], token: u32, k: u32) -> TokenLogprobs {
    logprobs(logprob_row(logits, token, k))
}

/// What `min_tokens` keeps from being drawn too early.
fn stop_token_ids(request: &EngineRequest) -> Vec<u32> {
    let params = &request.params;
    if params.min_tokens == 0 {
        return Vec::new();
    }
    let eos = request.eos_token_ids.iter().filter(|_| !params.ignore_eos);
    eos.chain(&params.stop_token_ids).copied().collect()
}

fn sampling_row<'a>(sequence: &'a Sequence, stop_token_ids: &'a [u32]) -> SamplingRow<'a> {
    let (request, params) = (&sequence.request, &sequence.request.params);
    SamplingRow {
        temperature: params.temperature,
        top_k: params.top_k,
        top_p: params.top_p,
        min_p: params.min_p,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        repetition_penalty: params.repetition_penalty,
        prompt_token_ids: &request.prompt_token_ids,
        output_token_ids: sequence.output_token_ids(),
        logit_bias: &params.logit_bias,
        allowed_token_ids: params.allowed_token_ids.as_deref(),
        bad_words: &params.bad_words,
        min_tokens: params.min_tokens,
        stop_token_ids,
        token_bitmask: None,
        seed: request.seed,
        position: sequence.token_ids.len() as u64,
        num_logprobs: params.logprobs,
    }
}

fn logprobs(row: LogprobRow) -> TokenLogprobs {
    let entry = |(token_id, logprob, rank)| Logprob { token_id, logprob, rank };
    row.entries.into_iter().map(entry).collect()
}
