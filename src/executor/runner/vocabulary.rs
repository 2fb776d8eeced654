//! From hidden states to sparse vectors: the weights of the vocabulary.

use std::mem;

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::request::outputs::{Produced, RequestOutput},
    ports::ExecuteError,
};
use playhouse_kernels::profile::timed;

use super::{
    ModelRunner,
    pooling::{Wanted, invalid, request, result},
};
use crate::{
    executor::batch::RaggedBatch,
    model::{
        Adapters,
        pooling::{Pooler, VocabularyHead},
    },
};

/// Rows of logits that are in memory at a time: with 250,000 tokens of a vocabulary 64 MB.
const ROWS: usize = 64;

impl ModelRunner {
    /// Gathers the weights of the vocabulary for pooling requests. Computes the results of those
    /// whose prompts are complete.
    pub(super) fn pool_weights(
        &mut self,
        (pooler, head): (&Pooler, &VocabularyHead),
        hidden: &Tensor<2>,
        (wanted, rows): (Vec<Wanted>, Vec<u32>),
        outputs: &mut [RequestOutput],
        ragged: &RaggedBatch,
    ) -> Result<(), ExecuteError> {
        for Wanted { chunk: index, rows: of_chunk } in wanted {
            let chunk = &ragged.chunks[index];
            let mut start = chunk.start;
            for rows in rows.get(of_chunk).unwrap_or_default().chunks(ROWS) {
                let logits = timed("lm_head", || {
                    self.logits_of(head, hidden, rows, Adapters::of(&ragged.adapters))
                })?;
                let sequence = self.batch.sequence_mut(chunk)?;
                let Some(params) = sequence.request.pooling() else { continue };
                let request = request(pooler, params, &sequence.token_ids);
                let part = start..start + rows.len();
                start = part.end;
                pooler.gather(&request, &mut sequence.gathered, part, &logits).map_err(invalid)?;
            }
            let sequence = self.batch.sequence_mut(chunk)?;
            let Some(params) = sequence.request.pooling() else { continue };
            if chunk.end == sequence.token_ids.len() {
                let request = request(pooler, params, &sequence.token_ids);
                match result(pooler, &request, mem::take(&mut sequence.gathered))? {
                    Ok(pooled) => outputs[index].produced = Produced::Pooled(pooled),
                    Err(failure) => outputs[index].failure = Some(failure),
                }
            }
        }
        Ok(())
    }

    /// Returns the logits of some rows, one after the other.
    fn logits_of(
        &self,
        VocabularyHead { head, .. }: &VocabularyHead,
        hidden: &Tensor<2>,
        rows: &[u32],
        adapters: Adapters<'_>,
    ) -> Result<Vec<f32>, ExecuteError> {
        // An abandoned step needs no further work.
        self.kv_lease.check()?;
        let hidden = hidden.clone();
        let data = self.threads.run(|| head.logits(hidden, rows, adapters).into_data());
        data.try_to_vec().map_err(|error| ExecuteError::Device(format!("{error:?}")))
    }
}
