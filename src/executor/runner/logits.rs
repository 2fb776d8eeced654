//! From hidden states to drawn tokens and to the log-probabilities of a prompt.

use std::{mem, ops::Range};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::request::outputs::{PromptLogprobs, RequestOutput, RowFailure},
    ports::ExecuteError,
};
use playhouse_kernels::{
    KernelError,
    profile::timed,
    recycle,
    sampling::{SampleError, Sampled, SamplingRow, logprobs_tensor, sample_tensor},
};

use super::{AllowedTokens, Buffers, ModelRunner};
use crate::executor::{
    batch::{Chunk, RaggedBatch, Sequence},
    constraint::Next,
    execute_error,
    sampler::{sampled_token, sampling_row, token_logprobs},
};
use crate::model::{Adapters, StepAdapters};

/// Logits are computed in parts of about this size. So a long prompt's log-probabilities need no
/// `[prompt, vocab]` buffer. At least [`MIN_LOGIT_ROWS`] rows share one pass over the weights.
const LOGITS_BYTES: usize = 32 << 20;
const MIN_LOGIT_ROWS: usize = 32;

/// Why a request ends whose rules about tokens contradict each other.
const NO_TOKEN_LEFT: &str = "allowed tokens and other rules leave no token that may come next";

/// Memory that draws reuse. Its content is meaningless between draws.
#[derive(Debug, Default)]
pub(super) struct DrawBuffers {
    indices: Vec<u32>,
    sampling_rows: Vec<SamplingRow<'static>>,
    sampled: Vec<Result<Sampled, SampleError>>,
}

/// A row of logits from which a token is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextRow {
    /// Row of the hidden states.
    row: u32,
    /// Index of its chunk.
    chunk: usize,
    /// Number of guesses before the token.
    num_guesses: usize,
}

/// A row of logits from which a prompt token's log-probabilities are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromptRow {
    row: u32,
    chunk: usize,
    /// The prompt position that it predicts.
    position: usize,
}

impl NextRow {
    /// Returns the tokens that may be drawn, if the request is constrained.
    fn next<'a>(&self, chunks: &[Chunk], allowed: &'a AllowedTokens) -> Option<&'a Next> {
        allowed.get(&chunks[self.chunk].request)?.get(self.num_guesses)?.as_ref().ok()
    }
}

impl ModelRunner {
    /// Finds the rows of logits that the step needs, in order of their hidden states.
    pub(super) fn find_rows(&self, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        let Buffers { ragged, next_rows, prompt_rows, .. } = buffers;
        next_rows.clear();
        prompt_rows.clear();
        for (index, chunk) in ragged.chunks.iter().enumerate() {
            let sequence = self.batch.sequence(chunk)?;
            let first_row = ragged.groups[0].query_start_loc[index];
            let row = |position: usize| first_row + (position - chunk.start) as u32;
            let Some(params) = sequence.request.sampling() else { continue };
            if params.prompt_logprobs.is_some() {
                // The logits at a position predict the token after it.
                let positions = predicted_prompt(chunk, sequence.request.num_prompt_tokens());
                let wanted =
                    |position| PromptRow { row: row(position - 1), chunk: index, position };
                prompt_rows.extend(positions.map(wanted));
            }
            if chunk.end == sequence.num_known() {
                next_rows.extend((0..=chunk.num_guesses).map(|num_guesses| NextRow {
                    row: row(chunk.end - 1 + num_guesses),
                    chunk: index,
                    num_guesses,
                }));
            }
        }
        Ok(())
    }

    /// Draws the next token of each request whose tokens are all computed, and the token after each
    /// guess. The draws of a request are in order, up to the first that fails.
    pub(super) fn sample(
        &self,
        hidden: Tensor<2>,
        allowed: &AllowedTokens,
        buffers: &mut Buffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let Buffers { ragged, next_rows, draw, .. } = buffers;
        next_rows.retain(|row| {
            let Some(list) = allowed.get(&ragged.chunks[row.chunk].request) else { return true };
            match list.get(row.num_guesses) {
                Some(Ok(_)) => true,
                Some(Err(why)) if row.num_guesses == 0 => {
                    outputs[row.chunk].failure = Some(RowFailure::Grammar(why.clone()));
                    false
                }
                // The failure counts once the tokens before it are drawn.
                Some(Err(_)) | None => false,
            }
        });
        let mut parts = next_rows.chunks(self.logit_rows());
        let last = parts.next_back();
        for rows in parts {
            self.draw(hidden.clone(), rows, ragged, allowed, draw, outputs)?;
        }
        match last {
            Some(rows) => self.draw(hidden, rows, ragged, allowed, draw, outputs),
            None => {
                recycle(hidden);
                Ok(())
            }
        }
    }

    /// Draws the tokens of some rows.
    fn draw(
        &self,
        hidden: Tensor<2>,
        rows: &[NextRow],
        ragged: &RaggedBatch,
        allowed: &AllowedTokens,
        buffers: &mut DrawBuffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let RaggedBatch { chunks, adapters, .. } = ragged;
        let DrawBuffers { indices, sampling_rows, sampled } = buffers;
        let mut asked = mem::take(sampling_rows);
        for row in rows {
            let sequence = self.batch.sequence(&chunks[row.chunk])?;
            asked.push(sampling_row(sequence, row.num_guesses, row.next(chunks, allowed))?);
        }
        indices.clear();
        indices.extend(rows.iter().map(|row| row.row));
        let draw = |logits| sample_tensor(logits, &asked, sampled);
        self.with_logits(hidden, indices, adapters, draw)?;
        *sampling_rows = emptied(asked);
        for (row, sampled) in rows.iter().zip(sampled.drain(..)) {
            let output = &mut outputs[row.chunk];
            match sampled {
                // A draw after a failed one does not count.
                _ if output.produced.tokens().len() < row.num_guesses => {}
                Ok(sampled) => output.produced.push(sampled_token(sampled)),
                // The next step shows the failure again, when the tokens before it are known.
                Err(_) if row.num_guesses > 0 => {}
                Err(SampleError::NoCandidate)
                    if row.next(chunks, allowed).is_some_and(is_ruled)
                        || self.batch.sequence(&chunks[row.chunk]).is_ok_and(forbids_tokens) =>
                {
                    output.failure = Some(RowFailure::Grammar(NO_TOKEN_LEFT.to_owned()));
                }
                Err(error) => {
                    let request = output.request.0;
                    tracing::warn!(request, %error, "no token could be drawn");
                    output.failure = Some(RowFailure::NotANumber);
                }
            }
        }
        Ok(())
    }

    /// Reads the log-probabilities of the prompt tokens for requests that asked for them.
    pub(super) fn read_prompts(
        &self,
        hidden: &Tensor<2>,
        buffers: &mut Buffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let Buffers { ragged, prompt_rows, draw: DrawBuffers { indices, .. }, .. } = buffers;
        for rows in prompt_rows.chunks(self.logit_rows()) {
            let wanted = rows.iter().map(|row| {
                let sequence = self.batch.sequence(&ragged.chunks[row.chunk])?;
                let params = sequence.request.sampling();
                let k = params.and_then(|params| params.prompt_logprobs).unwrap_or_default();
                Ok((sequence.token_ids[row.position], k))
            });
            let wanted = wanted.collect::<Result<Vec<_>, ExecuteError>>()?;
            indices.clear();
            indices.extend(rows.iter().map(|row| row.row));
            let read = |logits| logprobs_tensor(logits, &wanted);
            let computed = self.with_logits(hidden.clone(), indices, &ragged.adapters, read)?;
            for (row, computed) in rows.iter().zip(computed) {
                let empty = || PromptLogprobs { start: row.position, rows: Vec::new() };
                let output = outputs[row.chunk].prompt_logprobs.get_or_insert_with(empty);
                output.rows.push(token_logprobs(computed));
            }
        }
        Ok(())
    }

    /// Returns the result of `read` on the logits of some rows, `[indices.len(), vocab]`. Runs on
    /// the compute threads.
    fn with_logits<R: Send>(
        &self,
        hidden: Tensor<2>,
        indices: &[u32],
        adapters: &StepAdapters,
        read: impl FnOnce(Tensor<2>) -> Result<R, KernelError> + Send,
    ) -> Result<R, ExecuteError> {
        // An abandoned step needs no further work.
        self.kv_lease.check()?;
        let lm_head = self.model.lm_head.as_deref();
        let lm_head = lm_head.ok_or_else(|| {
            ExecuteError::InvalidStep("the model has no head that generates".to_owned())
        })?;
        self.threads.run(|| {
            let logits =
                timed("logits", || lm_head.logits(hidden, indices, Adapters::of(adapters)));
            timed("sampling", || read(logits)).map_err(execute_error)
        })
    }

    /// Returns the number of rows of logits that are computed at a time.
    fn logit_rows(&self) -> usize {
        logit_rows(self.model.vocab_size)
    }
}

/// Returns the number of rows of logits over `vocab_size` tokens that are computed at a time.
pub(in crate::executor) fn logit_rows(vocab_size: usize) -> usize {
    let row_bytes = vocab_size * size_of::<f32>();
    (LOGITS_BYTES / row_bytes.max(1)).max(MIN_LOGIT_ROWS)
}

/// Returns whether token rules restrict the next token.
fn is_ruled(next: &Next) -> bool {
    next.ruled.is_some()
}

/// Returns whether the request names tokens that it must not get, or all that it may get.
fn forbids_tokens(sequence: &Sequence) -> bool {
    let params = sequence.request.sampling();
    params.is_some_and(|params| params.allowed_token_ids.is_some() || !params.bad_words.is_empty())
}

/// Returns the empty vector with the memory of `rows`, for the rows of another step.
fn emptied(mut rows: Vec<SamplingRow<'_>>) -> Vec<SamplingRow<'static>> {
    rows.clear();
    // No row is left to map. `collect` reuses the memory of a vector whose elements have the same
    // size.
    rows.into_iter().map(|_| SamplingRow::default()).collect()
}

/// Returns the prompt positions that a chunk's logits predict.
fn predicted_prompt(chunk: &Chunk, num_prompt_tokens: usize) -> Range<usize> {
    chunk.start + 1..(chunk.end + 1).min(num_prompt_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptied_rows_leave_their_memory() {
        let output = [1, 2, 3];
        let row = SamplingRow { output_token_ids: &output, ..SamplingRow::default() };
        let rows = vec![row; 7];
        let (memory, capacity) = (rows.as_ptr().cast::<u8>(), rows.capacity());
        let emptied = emptied(rows);
        assert!(emptied.is_empty());
        assert_eq!((emptied.as_ptr().cast(), emptied.capacity()), (memory, capacity));
    }
}
