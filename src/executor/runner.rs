//! The model runner: one step after another on one device.

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc, thread};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::{
        request::{
            ids::RequestId,
            outputs::{Produced, PromptLogprobs, RequestOutput, RowFailure, StepOutput},
        },
        scheduler::output::SchedulerOutput,
    },
    ports::{ExecuteError, ModelExecutor},
};
use playhouse_kernels::{
    AttentionMetadata, KernelError,
    profile::timed,
    recycle,
    sampling::{SampleError, Sampled, SamplingRow, logprobs_tensor, sample_tensor},
};

use super::{
    batch::{Chunk, KvSizes, PersistentBatch, RaggedBatch},
    constraint::{Allowed, ConstraintSources, Masks, Next},
    execute_error,
    kv_arena::{KvLease, KvMemory},
    sampler::{sampled_token, sampling_row, token_logprobs},
    threads::ComputeThreads,
};
use crate::{
    grammar::GrammarStore,
    model::{KvPlace, Model, Positions, Step},
    token_rules::TokenRules,
};

/// Logits are computed in parts of about this size. So a long prompt's log-probabilities need no
/// `[prompt, vocab]` buffer. At least [`MIN_LOGIT_ROWS`] rows share one pass over the weights.
const LOGITS_BYTES: usize = 32 << 20;
const MIN_LOGIT_ROWS: usize = 32;

/// Why a request ends whose token rules contradict each other, or its other parameters.
const NO_TOKEN_LEFT: &str = "the token rules leave no token that may come next";

/// Runs steps over shared weights and a leased KV cache.
pub(super) struct ModelRunner {
    model: Arc<Model>,
    kv_lease: KvLease,
    threads: ComputeThreads,
    constraints: Constraints,
    kv_layout: KvLayout,
    batch: PersistentBatch,
    buffers: Buffers,
}

/// The layout of the KV cache, as steps see it.
#[derive(Debug, Clone)]
pub(super) struct KvLayout {
    pub(super) sizes: KvSizes,
    /// The place of each layer.
    pub(super) places: Arc<[KvPlace]>,
}

/// The sources of constraints on outputs.
#[derive(Debug, Clone)]
pub(crate) struct Constraints {
    pub(crate) grammars: Arc<GrammarStore>,
    pub(crate) token_rules: Arc<TokenRules>,
}

#[cfg(test)]
impl Constraints {
    /// Returns constraints for a test, without token rules.
    pub(super) fn of(grammars: GrammarStore) -> Self {
        Self { grammars: Arc::new(grammars), token_rules: Arc::default() }
    }
}

/// Memory that steps reuse.
#[derive(Debug, Default)]
struct Buffers {
    ragged: RaggedBatch,
    next_rows: Vec<NextRow>,
    prompt_rows: Vec<PromptRow>,
    draw: DrawBuffers,
}

/// Memory that draws reuse. Its content is meaningless between draws.
#[derive(Debug, Default)]
struct DrawBuffers {
    indices: Vec<u32>,
    sampling_rows: Vec<SamplingRow<'static>>,
    sampled: Vec<Result<Sampled, SampleError>>,
}

/// A row of logits from which a token is drawn.
#[derive(Debug, Clone, Copy)]
struct NextRow {
    /// Row of the hidden states.
    row: u32,
    /// Index of its chunk.
    chunk: usize,
}

/// A row of logits from which a prompt token's log-probabilities are read.
#[derive(Debug, Clone, Copy)]
struct PromptRow {
    row: u32,
    chunk: usize,
    /// The prompt position that it predicts.
    position: usize,
}

impl ModelRunner {
    pub(super) fn new(
        model: Arc<Model>,
        kv_lease: KvLease,
        threads: ComputeThreads,
        constraints: Constraints,
        kv_layout: KvLayout,
    ) -> Self {
        let (batch, buffers) = (PersistentBatch::default(), Buffers::default());
        Self { model, kv_lease, threads, constraints, kv_layout, batch, buffers }
    }

    /// Returns the hidden states, and the allowed tokens of each constrained request. Both are
    /// computed at the same time.
    fn compute(
        &mut self,
        batch: &mut RaggedBatch,
    ) -> Result<(Tensor<2>, BTreeMap<RequestId, Allowed>), ExecuteError> {
        let jobs = self.batch.lend_constraints(&batch.chunks);
        if jobs.is_empty() {
            return Ok((timed("forward", || self.forward(batch))?, BTreeMap::new()));
        }
        let sources = ConstraintSources {
            grammars: &self.constraints.grammars,
            token_rules: &self.constraints.token_rules,
            vocab_size: self.model.vocab_size,
        };
        let (hidden, done) = thread::scope(|scope| {
            let masks = timed("masks", || Masks::start(scope, jobs, sources));
            let hidden = timed("forward", || self.forward(batch));
            (hidden, timed("masks", || Vec::from_iter(masks.join())))
        });
        let allowed = done.into_iter().map(|done| self.batch.take_back(done)).collect();
        Ok((hidden?, allowed))
    }

    /// Returns the hidden states of the batch's tokens, `[num_tokens, hidden]`. A recorded step may
    /// have more rows.
    fn forward(&self, batch: &mut RaggedBatch) -> Result<Tensor<2>, ExecuteError> {
        let mut kv_memory = self.kv_lease.lock()?;
        let KvMemory { cache, graphs, .. } = &mut *kv_memory;
        let backbone = &*self.model.backbone;
        let places = &*self.kv_layout.places;
        let forward = |token_ids: &[u32], metas: &[AttentionMetadata]| {
            let mut step = Step::of_groups(metas, places, cache);
            backbone.forward(backbone.embed(token_ids), Positions::of_text(&metas[0]), &mut step)
        };
        let RaggedBatch { token_ids, groups, .. } = batch;
        let hidden = self.threads.run(|| graphs.run(token_ids, groups, forward));
        if let Some(why) = graphs.take_failure() {
            tracing::warn!(
                why,
                "steps cannot be recorded on this device and are launched one by one"
            );
        }
        Ok(hidden)
    }

    /// Frees recorded steps, because the memory that a step lacked is more valuable.
    fn forget_recordings(&self) {
        // Without a good lease, another runner has the cache, and nothing is freed.
        if let Ok(mut kv_memory) = self.kv_lease.lock() {
            kv_memory.forget_recordings();
        }
    }

    /// Finds the rows of logits that the step needs, in order of their hidden states.
    fn find_rows(&self, buffers: &mut Buffers) -> Result<(), ExecuteError> {
        let Buffers { ragged, next_rows, prompt_rows, .. } = buffers;
        next_rows.clear();
        prompt_rows.clear();
        for (index, chunk) in ragged.chunks.iter().enumerate() {
            let sequence = self.batch.sequence(chunk)?;
            let first_row = ragged.groups[0].query_start_loc[index];
            let row = |position: usize| first_row + (position - chunk.start) as u32;
            if sequence.request.sampling().prompt_logprobs.is_some() {
                // The logits at a position predict the token after it.
                let positions = predicted_prompt(chunk, sequence.request.num_prompt_tokens());
                let wanted =
                    |position| PromptRow { row: row(position - 1), chunk: index, position };
                prompt_rows.extend(positions.map(wanted));
            }
            if chunk.end == sequence.token_ids.len() {
                next_rows.push(NextRow { row: row(chunk.end - 1), chunk: index });
            }
        }
        Ok(())
    }

    /// Draws the next token of each request whose tokens are all computed.
    fn sample(
        &self,
        hidden: Tensor<2>,
        allowed: &BTreeMap<RequestId, Allowed>,
        buffers: &mut Buffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let Buffers { ragged, next_rows, draw, .. } = buffers;
        next_rows.retain(|row| match allowed.get(&ragged.chunks[row.chunk].request) {
            Some(Err(why)) => {
                outputs[row.chunk].failure = Some(RowFailure::Grammar(why.clone()));
                false
            }
            _ => true,
        });
        let mut parts = next_rows.chunks(self.logit_rows());
        let last = parts.next_back();
        for rows in parts {
            self.draw(hidden.clone(), rows, &ragged.chunks, allowed, draw, outputs)?;
        }
        match last {
            Some(rows) => self.draw(hidden, rows, &ragged.chunks, allowed, draw, outputs),
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
        chunks: &[Chunk],
        allowed: &BTreeMap<RequestId, Allowed>,
        buffers: &mut DrawBuffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let DrawBuffers { indices, sampling_rows, sampled } = buffers;
        let mut asked = mem::take(sampling_rows);
        for row in rows {
            let chunk = &chunks[row.chunk];
            let next: Option<&Next> =
                allowed.get(&chunk.request).and_then(|next| next.as_ref().ok());
            asked.push(sampling_row(self.batch.sequence(chunk)?, next));
        }
        indices.clear();
        indices.extend(rows.iter().map(|row| row.row));
        self.with_logits(hidden, indices, |logits| sample_tensor(logits, &asked, sampled))?;
        *sampling_rows = emptied(asked);
        for (row, sampled) in rows.iter().zip(sampled.drain(..)) {
            let output = &mut outputs[row.chunk];
            match sampled {
                Ok(sampled) => output.produced.tokens_mut().push(sampled_token(sampled)),
                Err(SampleError::NoCandidate)
                    if is_ruled(allowed.get(&chunks[row.chunk].request)) =>
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
    fn read_prompts(
        &self,
        hidden: &Tensor<2>,
        buffers: &mut Buffers,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let Buffers { ragged, prompt_rows, draw: DrawBuffers { indices, .. }, .. } = buffers;
        for rows in prompt_rows.chunks(self.logit_rows()) {
            let wanted = rows.iter().map(|row| {
                let sequence = self.batch.sequence(&ragged.chunks[row.chunk])?;
                let k = sequence.request.sampling().prompt_logprobs.unwrap_or_default();
                Ok((sequence.token_ids[row.position], k))
            });
            let wanted = wanted.collect::<Result<Vec<_>, ExecuteError>>()?;
            indices.clear();
            indices.extend(rows.iter().map(|row| row.row));
            let read = |logits| logprobs_tensor(logits, &wanted);
            let computed = self.with_logits(hidden.clone(), indices, read)?;
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
        read: impl FnOnce(Tensor<2>) -> Result<R, KernelError> + Send,
    ) -> Result<R, ExecuteError> {
        // An abandoned step needs no further work.
        self.kv_lease.check()?;
        let lm_head = &*self.model.lm_head;
        self.threads.run(|| {
            let logits = timed("logits", || lm_head.logits(hidden, indices));
            timed("sampling", || read(logits)).map_err(execute_error)
        })
    }

    /// Returns the number of rows of logits that are computed at a time.
    fn logit_rows(&self) -> usize {
        logit_rows(self.model.vocab_size)
    }

    fn run(
        &mut self,
        step: &SchedulerOutput,
        buffers: &mut Buffers,
    ) -> Result<Vec<RequestOutput>, ExecuteError> {
        let sizes = self.kv_layout.sizes;
        timed("lay_out", || self.batch.lay_out(step, sizes, &mut buffers.ragged))?;
        let empty = |request: RequestId, failure: Option<RowFailure>| RequestOutput {
            request,
            produced: Produced::default(),
            prompt_logprobs: None,
            failure,
        };
        let chunks = buffers.ragged.chunks.iter();
        let mut outputs: Vec<_> = chunks.map(|chunk| empty(chunk.request, None)).collect();
        if !outputs.is_empty() {
            let (hidden, allowed) = self.compute(&mut buffers.ragged)?;
            self.find_rows(buffers)?;
            self.read_prompts(&hidden, buffers, &mut outputs)?;
            self.sample(hidden, &allowed, buffers, &mut outputs)?;
        }
        for (chunk, output) in buffers.ragged.chunks.iter().zip(&outputs) {
            let drawn = match &output.failure {
                Some(failure) => Err(failure.clone()),
                None => Ok(&output.produced.tokens()[..]),
            };
            self.batch.continue_with(chunk, drawn);
        }
        let broken = buffers.ragged.broken.drain(..);
        outputs.extend(broken.map(|(request, failure)| empty(request, Some(failure))));
        Ok(outputs)
    }
}

/// Returns the number of rows of logits over `vocab_size` tokens that are computed at a time.
pub(super) fn logit_rows(vocab_size: usize) -> usize {
    let row_bytes = vocab_size * size_of::<f32>();
    (LOGITS_BYTES / row_bytes.max(1)).max(MIN_LOGIT_ROWS)
}

/// Returns whether token rules restrict the next token.
fn is_ruled(allowed: Option<&Allowed>) -> bool {
    matches!(allowed, Some(Ok(Next { ruled: Some(_), .. })))
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

impl ModelExecutor for ModelRunner {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        timed("step", || {
            let mut buffers = mem::take(&mut self.buffers);
            let outputs = self.run(step, &mut buffers);
            self.buffers = buffers;
            if let Err(ExecuteError::OutOfMemory(_)) = &outputs {
                self.forget_recordings();
            }
            Ok(StepOutput { epoch: step.epoch, step: step.step, outputs: outputs? })
        })
    }
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
