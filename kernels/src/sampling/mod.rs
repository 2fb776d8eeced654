//! The step from a row of logits to a token, on the logits' device, in vLLM's order and by its
//! exact rules.
//!
//! 1. log-probabilities of the unmodified row, where asked for;
//! 2. masks: `allowed_token_ids`, `bad_words`, `min_tokens`; then `logit_bias`;
//! 3. penalties over the tokens so far: repetition, frequency, presence;
//! 4. the bitmask of a grammar. Where it leaves none of the remaining tokens, it alone counts;
//! 5. below [`GREEDY_TEMPERATURE`] the largest logit, the lowest id where it is tied; otherwise
//! 6. temperature, `min_p`, `top_k` (ties kept), `top_p`, and a Gumbel-max draw.
//!
//! The draw has no state: its noise is a function of (seed, absolute position, token id). A token
//! therefore does not depend on earlier draws, on the rest of the batch, or on a run that crashed.

use std::cell::RefCell;

use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use crate::KernelError;
use crate::tensors::{dense, from_tensor, values, values_mut};
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::give_back;

#[cfg(feature = "gpu")]
mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
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

/// Picks the next token. `logits` is `[vocab]` f32 and is overwritten.
///
/// # Errors
/// A logit that is NaN or +∞, or masks that leave no token.
pub fn sample(
    logits: &mut [f32],
    row: &SamplingRow<'_>,
    scratch: &mut SamplingScratch,
) -> Result<Sampled, SampleError> {
    let scan = select::scan(logits);
    if scan.is_garbage {
        return Err(first_garbage(logits));
    }
    let (is_changed, is_greedy) = (row.changes_logits(), row.is_greedy());
    let is_overwritten = is_changed || !is_greedy;
    scratch.raw.clear();
    if is_overwritten && (row.num_logprobs.is_some() || row.token_bitmask.is_some()) {
        scratch.raw.extend_from_slice(logits);
    }
    let best = if is_changed {
        mask::apply(logits, row);
        penalties::apply(logits, row, scratch);
        if let Some(bitmask) = row.token_bitmask {
            mask::keep_set(logits, bitmask, &scratch.raw);
        }
        select::scan(logits).best
    } else {
        scan.best
    };
    let best = best.ok_or(SampleError::NoCandidate)?;
    let token_id = if is_greedy {
        best
    } else {
        if row.temperature != 1.0 {
            logits.iter_mut().for_each(|logit| *logit /= row.temperature);
        }
        let kept = truncate::apply(logits, row, best, scratch);
        draw::gumbel_argmax(logits, kept, best, row)
    };
    let raw: &[f32] = if is_overwritten { &scratch.raw } else { logits };
    let logprobs = row.num_logprobs;
    let logprobs = logprobs.map(|k| logprob_row(raw, token_id, k, row.logprob_token_ids));
    Ok(Sampled { token_id, logprobs })
}

/// Runs [`sample`] for each row of `logits`, `[rows.len(), vocab]` f32, on their device. Replaces
/// the content of `sampled`. On a GPU noise and masses are float32. Where two tokens are almost
/// equal, or a token is at the edge of `top_p`, its draw may differ from the CPU's.
///
/// # Errors
/// An error of the device, also from the operations that computed the logits.
///
/// # Panics
/// If `logits` has another number of rows.
pub fn sample_tensor(
    logits: Tensor<2>,
    rows: &[SamplingRow<'_>],
    sampled: &mut Vec<Result<Sampled, SampleError>>,
) -> Result<(), KernelError> {
    #[cfg(feature = "gpu")]
    let logits = match crate::cube::device_tensor(logits) {
        Ok(logits) => return cube::sample(logits, rows, sampled),
        Err(logits) => logits,
    };
    let mut logits = host_rows(logits)?;
    sample_rows(values_mut(&mut logits), rows, sampled);
    give_back(logits);
    Ok(())
}

/// Runs [`logprob_row`] for each row of `logits`, `[wanted.len(), vocab]` f32, on their device.
/// Each row has a token, and the number of likeliest tokens.
///
/// # Errors
/// As [`sample_tensor`].
///
/// # Panics
/// If `logits` has another number of rows, or a token is outside them.
pub fn logprobs_tensor(
    logits: Tensor<2>,
    wanted: &[(u32, u32)],
) -> Result<Vec<LogprobRow>, KernelError> {
    #[cfg(feature = "gpu")]
    let logits = match crate::cube::device_tensor(logits) {
        Ok(logits) => return cube::logprobs(logits, wanted),
        Err(logits) => logits,
    };
    let logits = host_rows(logits)?;
    let computed = logprob_rows(values(&logits), wanted);
    give_back(logits);
    Ok(computed)
}

fn host_rows(logits: Tensor<2>) -> Result<FlexTensor, KernelError> {
    let why = || KernelError::device("there are no kernels where the logits are".to_owned());
    from_tensor(logits).map(dense).ok_or_else(why)
}

/// Runs [`sample`] for each row of `logits`, `[rows.len(), vocab]`, with rows divided among the
/// threads. Replaces the content of `sampled`. A result is a function of its row alone.
///
/// # Panics
/// If `logits` is not a whole number of elements a row.
pub fn sample_rows(
    logits: &mut [f32],
    rows: &[SamplingRow<'_>],
    sampled: &mut Vec<Result<Sampled, SampleError>>,
) {
    thread_local! {
        static SCRATCH: RefCell<SamplingScratch> = RefCell::default();
    }
    let vocab = logits.len() / rows.len().max(1);
    assert_eq!(logits.len(), rows.len() * vocab, "sample_rows: logits of {} rows", rows.len());
    // A row costs several passes over its logits.
    let work = 8 * logits.len();
    sampled.clear();
    sampled.resize(rows.len(), Err(SampleError::NoCandidate));
    let (logits, results) = (SharedMut::new(logits), SharedMut::new(sampled));
    for_each_piece(rows.len(), work, |i| {
        // SAFETY: a piece has its own row of each, and pieces do not repeat.
        let (logits, result) = unsafe { (logits.slice(i * vocab, vocab), results.slice(i, 1)) };
        SCRATCH.with_borrow_mut(|scratch| result[0] = sample(logits, &rows[i], scratch));
    });
}

/// Runs [`logprob_row`] for each row of `logits`, `[wanted.len(), vocab]`, with rows divided among
/// the threads. Each row has a token, and the number of likeliest tokens.
///
/// # Panics
/// If `logits` is not a whole number of elements a row, or a token is outside it.
#[must_use]
pub fn logprob_rows(logits: &[f32], wanted: &[(u32, u32)]) -> Vec<LogprobRow> {
    let vocab = logits.len() / wanted.len().max(1);
    assert_eq!(logits.len(), wanted.len() * vocab, "logprob_rows: logits of {} rows", wanted.len());
    let mut computed = vec![LogprobRow { entries: Vec::new() }; wanted.len()];
    let rows = SharedMut::new(&mut computed);
    for_each_piece(wanted.len(), 8 * logits.len(), |i| {
        let (token, k) = wanted[i];
        let computed = logprob_row(&logits[i * vocab..(i + 1) * vocab], token, k, &[]);
        // SAFETY: a piece has its own element, and pieces do not repeat.
        let row = unsafe { rows.slice(i, 1) };
        row[0] = computed;
    });
    computed
}

/// Returns the error for the first logit that is NaN or +∞. A logit of −∞ is a legal mask.
fn first_garbage(logits: &[f32]) -> SampleError {
    let is_bad = |l: &f32| l.is_nan() || *l == f32::INFINITY;
    let token = logits.iter().position(is_bad).unwrap_or_default();
    let logit = logits.get(token).map_or_else(String::new, f32::to_string);
    SampleError::NotFinite { token_id: token as u32, logit }
}
