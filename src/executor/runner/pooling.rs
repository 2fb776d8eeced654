//! From hidden states to the results of pooling requests.

use std::{mem, ops::Range};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::request::{
        outputs::{Pooled, Produced, RequestOutput, RowFailure},
        pooling_params::{PoolingParams, PoolingTask},
    },
    ports::ExecuteError,
};
use playhouse_kernels::{profile::timed, select_rows};

use super::ModelRunner;
use crate::{
    config::PoolerTask,
    executor::batch::RaggedBatch,
    model::{
        Adapter,
        pooling::{Gathered, Pooler, PoolerError, PoolerRequest},
    },
};

/// The hidden states that one chunk's request needs.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Index of the chunk.
    pub(super) chunk: usize,
    /// Their places among all hidden states that the step reads.
    pub(super) rows: Range<usize>,
}

impl ModelRunner {
    /// Gathers hidden states for pooling requests. Computes the results of those whose prompts are
    /// complete.
    pub(super) fn pool(
        &mut self,
        hidden: &Tensor<2>,
        ragged: &RaggedBatch,
        outputs: &mut [RequestOutput],
    ) -> Result<(), ExecuteError> {
        let Some(pooler) = self.model.pooler.clone() else { return self.refuse(ragged) };
        let (wanted, rows) = self.wanted(&pooler, ragged)?;
        if wanted.is_empty() {
            return Ok(());
        }
        if let Some(head) = &pooler.vocabulary {
            return self.pool_weights((&*pooler, head), hidden, (wanted, rows), outputs, ragged);
        }
        let values = timed("pooling", || self.read(hidden, &rows))?;
        let width = pooler.hidden_size;
        for Wanted { chunk: index, rows } in wanted {
            let chunk = &ragged.chunks[index];
            let sequence = self.batch.sequence_mut(chunk)?;
            let Some(params) = sequence.request.pooling() else { continue };
            let request = PoolerRequest {
                classifier: sequence.adapter.as_deref().and_then(Adapter::classifier),
                ..request(&pooler, params, &sequence.token_ids)
            };
            let rows = values.get(rows.start * width..rows.end * width).unwrap_or_default();
            let gathered = &mut sequence.gathered;
            pooler.gather(&request, gathered, chunk.start..chunk.end, rows).map_err(invalid)?;
            if chunk.end == sequence.token_ids.len() {
                let output = &mut outputs[index];
                match result(&pooler, &request, mem::take(gathered))? {
                    Ok(pooled) => output.produced = Produced::Pooled(pooled),
                    Err(failure) => output.failure = Some(failure),
                }
            }
        }
        Ok(())
    }

    /// Refuses pooling requests, because the model has no pooler.
    fn refuse(&self, ragged: &RaggedBatch) -> Result<(), ExecuteError> {
        for chunk in &ragged.chunks {
            if self.batch.sequence(chunk)?.request.pooling().is_some() {
                let what = format!("request {} pools, and the model has no pooler", chunk.request);
                return Err(ExecuteError::InvalidStep(what));
            }
        }
        Ok(())
    }

    /// Returns the hidden states that pooling requests need, by chunk, and all their rows.
    fn wanted(
        &self,
        pooler: &Pooler,
        ragged: &RaggedBatch,
    ) -> Result<(Vec<Wanted>, Vec<u32>), ExecuteError> {
        let (mut wanted, mut rows) = (Vec::new(), Vec::new());
        for (index, chunk) in ragged.chunks.iter().enumerate() {
            let sequence = self.batch.sequence(chunk)?;
            let Some(params) = sequence.request.pooling() else { continue };
            let first_row = ragged.groups[0].query_start_loc[index];
            let request = request(pooler, params, &sequence.token_ids);
            let positions = pooler.wanted(&request, chunk.start..chunk.end);
            let start = rows.len();
            rows.extend(positions.map(|position| first_row + (position - chunk.start) as u32));
            wanted.push(Wanted { chunk: index, rows: start..rows.len() });
        }
        Ok((wanted, rows))
    }

    /// Returns rows of the hidden states, one after the other.
    fn read(&self, hidden: &Tensor<2>, rows: &[u32]) -> Result<Vec<f32>, ExecuteError> {
        // An abandoned step needs no further work.
        self.kv_lease.check()?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let hidden = hidden.clone();
        let data = self.threads.run(|| select_rows(hidden, rows).into_data());
        data.try_into_vec().map_err(|error| ExecuteError::Device(format!("{error:?}")))
    }
}

/// Returns the number of elements to which the vector of a prompt in pieces is cut, after those of
/// its pieces are joined.
pub(crate) fn cut_of_joined(pooler: &Pooler) -> Option<u32> {
    pooler.truncate_dim.filter(|_| pooler.dimensions.is_none() && pooler.vocabulary.is_none())
}

/// Returns the request as the pooler takes it. The vector of a piece is not cut.
pub(super) fn request<'a>(
    pooler: &Pooler,
    params: &'a PoolingParams,
    prompt: &'a [u32],
) -> PoolerRequest<'a> {
    let task = pooler_task(params.task);
    let activation = params.use_activation.unwrap_or(pooler.activation);
    let is_cut_later = params.in_pieces && cut_of_joined(pooler).is_some();
    let dimensions = params.dimensions.or(is_cut_later.then_some(u32::MAX));
    let chunk_ends = &params.chunk_ends[..];
    let num_left_out = params.num_left_out as usize;
    let classifier = None;
    PoolerRequest { task, activation, dimensions, prompt, chunk_ends, num_left_out, classifier }
}

/// Returns the result of a request, or a failure if a number of it is not finite.
pub(super) fn result(
    pooler: &Pooler,
    request: &PoolerRequest<'_>,
    gathered: Gathered,
) -> Result<Result<Pooled, RowFailure>, ExecuteError> {
    let output = pooler.finish(request, gathered).map_err(invalid)?;
    if output.values.iter().all(|value| value.is_finite()) {
        return Ok(Ok(Pooled { values: output.values.into(), width: output.width }));
    }
    Ok(Err(RowFailure::NotANumber))
}

pub(super) fn invalid(error: PoolerError) -> ExecuteError {
    ExecuteError::InvalidStep(error.to_string())
}

fn pooler_task(task: PoolingTask) -> PoolerTask {
    match task {
        PoolingTask::Embed => PoolerTask::Embed,
        PoolingTask::TokenEmbed => PoolerTask::TokenEmbed,
        PoolingTask::Classify => PoolerTask::Classify,
        PoolingTask::TokenClassify => PoolerTask::TokenClassify,
    }
}
