//! From a row of logits to a token, in vLLM's order and with its exact rules, on the host.
//!
//! 1. log-probabilities of the unmodified row, where asked for;
//! 2. masks: `allowed_token_ids`, `bad_words`, `min_tokens`; then `logit_bias`;
//! 3. penalties over the tokens so far: repetition, frequency, presence;
//! 4. the bitmask of a grammar; where it leaves none of the tokens that are left, it alone counts;
//! 5. below [`GREEDY_TEMPERATURE`] the largest logit, the lowest id where it is tied; else
//! 6. temperature, `min_p`, `top_k` (ties kept), `top_p`, and a Gumbel-max draw.
//!
//! The draw has no state: its noise is a function of (seed, absolute position, token id), so a
//! token is the same whatever was sampled before, elsewhere in the batch, or in a run that died.

mod draw;
mod logprobs;
mod mask;
mod penalties;
mod philox;
mod row;
mod scratch;
mod select;
#[cfg(test)]
mod tests;
mod truncate;

pub use logprobs::{LogprobRow, logprob_row};
pub use row::{GREEDY_TEMPERATURE, SampleError, Sampled, SamplingRow};
pub use scratch::SamplingScratch;

/// Picks the next token. `logits` is `[vocab]` f32; it is overwritten.
///
/// # Errors
/// A logit that is NaN or +∞, or masks that leave no token.
pub fn sample(
    logits: &mut [f32],
    row: &SamplingRow<'_>,
    scratch: &mut SamplingScratch,
) -> Result<Sampled, SampleError> {
    check_finite(logits)?;
    scratch.raw.clear();
    if row.num_logprobs.is_some() || row.token_bitmask.is_some() {
        scratch.raw.extend_from_slice(logits);
    }
    mask::apply(logits, row);
    penalties::apply(logits, row, scratch);
    if let Some(bitmask) = row.token_bitmask {
        mask::keep_set(logits, bitmask, &scratch.raw);
    }
    let best = draw::argmax(logits).ok_or(SampleError::NoCandidate)?;
    let token_id = if row.is_greedy() {
        best
    } else {
        for logit in logits.iter_mut() {
            *logit /= row.temperature;
        }
        let kept = truncate::apply(logits, row, best, scratch);
        draw::gumbel_argmax(logits, kept, best, row)
    };
    let logprobs = row.num_logprobs.map(|k| logprob_row(&scratch.raw, token_id, k));
    Ok(Sampled { token_id, logprobs })
}

/// Refuses rows in which the model's arithmetic broke down; −∞ is a legal mask.
fn check_finite(logits: &[f32]) -> Result<(), SampleError> {
    let bad = |l: &f32| l.is_nan() || *l == f32::INFINITY;
    // Without an early exit, so that it vectorises.
    if !logits.iter().fold(false, |any, l| any | bad(l)) {
        return Ok(());
    }
    match logits.iter().position(bad) {
        None => Ok(()),
        Some(i) => Err(SampleError::NotFinite { token_id: i as u32, logit: logits[i].to_string() }),
    }
}
