//! The model runner: one step after another on one device.

use std::{collections::BTreeMap, ops::Range, sync::Arc, thread};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::{
        ids::RequestId,
        outputs::{PromptLogprobs, RequestOutput, StepOutput},
        scheduler_output::SchedulerOutput,
    },
    ports::{ExecuteError, ModelExecutor},
};
use playhouse_kernels::{KvCache, profile::timed};

use super::{
    batch::{Chunk, PersistentBatch, RaggedBatch},
    constraint::{Allowed, Masks},
    kv_arena::KvLease,
    sampler::{Sampler, prompt_logprobs},
    threads::ComputeThreads,
};
use crate::{
    grammar::GrammarStore,
    model::{CausalLm, ForwardBatch},
};

/// Rows of logits made at a time, so that log-probabilities of a long prompt need no
/// `[prompt, vocab]` buffer.
const LOGIT_ROWS: usize = 32;

/// Runs steps over shared weights and a leased KV cache.
pub(super) struct ModelRunner {
    model: Arc<dyn CausalLm>,
    kv_lease: KvLease,
    threads: ComputeThreads,
    grammars: Arc<GrammarStore>,
    block_size: usize,
    batch: PersistentBatch,
    sampler: Sampler,
}

/// A row of logits that a step needs.
#[derive(Debug, Clone, Copy)]
struct LogitRow {
    /// Row of the hidden states.
    row: u32,
    /// Index of its chunk.
    chunk: usize,
    /// The prompt position that it predicts, or the next token.
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    PromptPosition(usize),
    NextToken,
}

impl ModelRunner {
    pub(super) fn new(
        model: Arc<dyn CausalLm>,
        kv_lease: KvLease,
        threads: ComputeThreads,
        grammars: Arc<GrammarStore>,
        block_size: usize,
    ) -> Self {
        let (batch, sampler) = (PersistentBatch::default(), Sampler::default());
        Self { model, kv_lease, threads, grammars, block_size, batch, sampler }
    }

    /// Hidden states, and meanwhile which tokens may come next for those that are not free.
    fn compute(
        &mut self,
        batch: &RaggedBatch,
    ) -> Result<(Tensor<2>, BTreeMap<RequestId, Allowed>), ExecuteError> {
        let jobs = self.batch.lend_constraints(&batch.chunks);
        let vocab_size = self.model.config().vocab_size;
        let (hidden, done) = thread::scope(|scope| {
            let masks = timed("masks", || Masks::start(scope, jobs, &self.grammars, vocab_size));
            let hidden = timed("forward", || self.forward(batch));
            (hidden, timed("masks", || Vec::from_iter(masks.join())))
        });
        let allowed = done.into_iter().map(|done| self.batch.take_back(done)).collect();
        Ok((hidden?, allowed))
    }

    /// Hidden states of the batch's tokens, `[num_tokens, hidden]`.
    fn forward(&self, batch: &RaggedBatch) -> Result<Tensor<2>, ExecuteError> {
        let mut kv_cache = self.kv_lease.lock()?;
        let forward = ForwardBatch { token_ids: &batch.token_ids, meta: &batch.attention };
        let kv_cache: &mut KvCache = &mut kv_cache;
        Ok(self.threads.run(|| self.model.forward(&forward, kv_cache)))
    }

    /// The rows of logits that the step needs, in order of their hidden states.
    fn logit_rows(&self, batch: &RaggedBatch) -> Result<Vec<LogitRow>, ExecuteError> {
        let mut rows = Vec::new();
        for (index, chunk) in batch.chunks.iter().enumerate() {
            let sequence = self.batch.get(chunk.request)?;
            let first_row = batch.attention.query_start_loc[index];
            let mut push = |position: usize, target| {
                let row = first_row + (position - chunk.start) as u32;
                rows.push(LogitRow { row, chunk: index, target });
            };
            if sequence.request.params.prompt_logprobs.is_some() {
                // The logits at a position are about the token after it.
                for position in predicted_prompt(chunk, sequence.request.num_prompt_tokens()) {
                    push(position - 1, Target::PromptPosition(position));
                }
            }
            if chunk.end == sequence.token_ids.len() {
                push(chunk.end - 1, Target::NextToken);
            }
        }
        Ok(rows)
    }

    fn read_row(
        &mut self,
        logits: &mut [f32],
        row: LogitRow,
        allowed: &BTreeMap<RequestId, Allowed>,
        output: &mut RequestOutput,
    ) -> Result<(), ExecuteError> {
        let sequence = self.batch.get(output.request)?;
        match row.target {
            Target::PromptPosition(position) => {
                let k = sequence.request.params.prompt_logprobs.unwrap_or_default();
                let computed = prompt_logprobs(logits, sequence.token_ids[position], k);
                let start = position;
                let empty = || PromptLogprobs { start, rows: Vec::new() };
                output.prompt_logprobs.get_or_insert_with(empty).rows.push(computed);
            }
            Target::NextToken => {
                let mask = match allowed.get(&output.request) {
                    None => None,
                    Some(Ok(mask)) => mask.as_ref(),
                    Some(Err(error)) => {
                        output.grammar_error = Some(error.to_string());
                        return Ok(());
                    }
                };
                match self.sampler.sample(logits, sequence, mask) {
                    Ok(token) => output.sampled.push(token),
                    Err(error) => {
                        let request = output.request.0;
                        tracing::warn!(request, %error, "no token could be drawn");
                        output.is_nan = true;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The prompt positions that a chunk's logits are about.
fn predicted_prompt(chunk: &Chunk, num_prompt_tokens: usize) -> Range<usize> {
    chunk.start + 1..(chunk.end + 1).min(num_prompt_tokens)
}

impl ModelExecutor for ModelRunner {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        timed("step", || self.step(step))
    }
}

impl ModelRunner {
    fn step(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        let batch = timed("lay_out", || self.batch.lay_out(step, self.block_size))?;
        let empty = |chunk: &Chunk| RequestOutput {
            request: chunk.request,
            sampled: Vec::new(),
            prompt_logprobs: None,
            is_nan: false,
            grammar_error: None,
        };
        let mut outputs: Vec<_> = batch.chunks.iter().map(empty).collect();
        if !batch.chunks.is_empty() {
            let (hidden, allowed) = self.compute(&batch)?;
            let rows = self.logit_rows(&batch)?;
            for rows in rows.chunks(LOGIT_ROWS) {
                let indices: Vec<u32> = rows.iter().map(|row| row.row).collect();
                // A step that was abandoned is worth no more work.
                self.kv_lease.check()?;
                let logits = timed("logits", || {
                    self.threads.run(|| self.model.logits(hidden.clone(), &indices))
                });
                let vocab = logits.dims()[1];
                let mut logits = logits.into_data().try_into_vec::<f32>().map_err(|error| {
                    ExecuteError::Device(format!("logits could not be read: {error:?}"))
                })?;
                timed("sampling", || {
                    let mut rows = rows.iter().zip(logits.chunks_mut(vocab));
                    rows.try_for_each(|(row, logits)| {
                        self.read_row(logits, *row, &allowed, &mut outputs[row.chunk])
                    })
                })?;
            }
        }
        Ok(StepOutput { epoch: step.epoch, step: step.step, outputs })
    }
}
