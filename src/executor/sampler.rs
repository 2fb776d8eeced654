//! From rows of logits to tokens and log-probabilities.

use playhouse_actors::{
    logic::request::outputs::{Logprob, SampledToken, TokenLogprobs},
    ports::ExecuteError,
};
use playhouse_kernels::sampling::{LogprobRow, Sampled, SamplingRow};

use super::{batch::Sequence, constraint::Next};
use crate::grammar::TokenMask;

/// Returns the parameters for drawing the token after `sequence` and `num_guesses` guesses of the
/// current step. If it is constrained, only the tokens of `next` are allowed.
///
/// # Errors
/// [`ExecuteError::InvalidStep`] if the request does not generate.
pub(super) fn sampling_row<'a>(
    sequence: &'a Sequence,
    num_guesses: usize,
    next: Option<&'a Next>,
) -> Result<SamplingRow<'a>, ExecuteError> {
    let request = &sequence.request;
    let params = request.sampling().ok_or_else(|| {
        ExecuteError::InvalidStep(format!("request {} does not generate", request.id))
    })?;
    let (logit_bias, allowed_token_ids) = match next.and_then(|next| next.ruled.as_ref()) {
        Some(ruled) => (ruled.biases(), ruled.allowed()),
        None => (&params.logit_bias[..], params.allowed_token_ids.as_deref()),
    };
    Ok(SamplingRow {
        temperature: params.temperature,
        top_k: params.top_k,
        top_p: params.top_p,
        min_p: params.min_p,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        repetition_penalty: params.repetition_penalty,
        prompt_token_ids: &request.prompt_token_ids,
        output_token_ids: sequence.output_token_ids(num_guesses),
        logit_bias,
        allowed_token_ids,
        bad_words: &params.bad_words,
        min_tokens: params.min_tokens,
        stop_token_ids: &sequence.stop_token_ids,
        token_bitmask: next.and_then(|next| next.mask.as_ref()).map(TokenMask::words),
        seed: request.seed,
        position: (sequence.num_known() + num_guesses) as u64,
        num_logprobs: params.logprobs,
        logprob_token_ids: &params.logprob_token_ids,
    })
}

/// Returns a drawn token in the scheduler's form.
pub(super) fn sampled_token(sampled: Sampled) -> SampledToken {
    SampledToken { token_id: sampled.token_id, logprobs: sampled.logprobs.map(token_logprobs) }
}

/// Returns log-probabilities in the scheduler's form.
pub(super) fn token_logprobs(row: LogprobRow) -> TokenLogprobs {
    let entry = |(token_id, logprob, rank)| Logprob { token_id, logprob, rank };
    row.entries.into_iter().map(entry).collect()
}
