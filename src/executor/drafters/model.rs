//! Guesses by a smaller model of the same vocabulary.
//!
//! Its keys and values lie in a cache of its own, under the block ids of the model's cache. So it
//! needs no blocks of its own. Nothing relies on the content: a wrong one only makes wrong guesses.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::request::ids::{RequestId, TokenId},
    ports::ExecuteError,
};
use playhouse_kernels::{
    AttentionMetadata, KernelError, KvCache, profile::timed, sampling::sample_tensor,
};

use super::{DraftCache, Drafter, GuessTime, Wanted};
use crate::{
    executor::{
        batch::{Sequence, append_positions},
        execute_error,
        sampler::sampling_row,
        threads::ComputeThreads,
    },
    model::{Adapters, Model, Positions, Step},
};

/// Most tokens of a request's text that the model computes in one step before it guesses. A longer
/// text is computed over several steps, without guesses.
const CATCH_UP_TOKENS: usize = 2048;

/// The drafter of one executor.
pub(in crate::executor) struct ModelDrafter {
    model: Arc<Model>,
    cache: DraftCache,
    threads: ComputeThreads,
    texts: BTreeMap<RequestId, Text>,
}

/// The tokens of a request that the draft model has computed.
#[derive(Debug, Default)]
struct Text {
    num_computed: usize,
    /// Number of tokens that were not guesses.
    num_known: usize,
    /// The guesses after them.
    guesses: Vec<TokenId>,
}

/// One forward pass of the draft model.
#[derive(Default)]
struct Pass {
    token_ids: Vec<TokenId>,
    meta: AttentionMetadata,
    /// The last row of each request that gets a guess, and its index.
    draws: Vec<(u32, usize)>,
}

impl Pass {
    /// Returns whether it computes no more tokens than passes of requests do whose earlier text is
    /// computed: one a guess, and one more after guesses that were all right.
    fn reads_little(&self) -> bool {
        self.token_ids.len() <= 2 * self.draws.len()
    }
}

impl ModelDrafter {
    pub(in crate::executor) fn new(
        model: Arc<Model>,
        cache: DraftCache,
        threads: ComputeThreads,
    ) -> Self {
        Self { model, cache, threads, texts: BTreeMap::new() }
    }

    /// Returns the next pass: for each request its tokens that are not computed yet. A request that
    /// gets no guess in this pass gets none in this step.
    fn next_pass(&mut self, wanted: &[Wanted<'_>], active: &mut Vec<usize>) -> Pass {
        let mut pass = Pass::default();
        pass.meta.query_start_loc.push(0);
        let (model, DraftCache { group, block_size, .. }) = (&self.model, &self.cache);
        active.retain(|&index| {
            let Wanted { sequence, most, guesses, .. } = &wanted[index];
            let Some(text) = self.texts.get_mut(&sequence.request.id) else { return false };
            let (num_known, start) = (sequence.token_ids.len(), text.num_computed);
            let last = num_known + guesses.len();
            let end = last.min(start + CATCH_UP_TOKENS);
            let block_ids = sequence.block_ids.group(*group);
            let has_room = end <= block_ids.len() * block_size && end <= model.max_model_len;
            if guesses.len() >= *most || !has_room {
                return false;
            }
            let known = &sequence.token_ids[start.min(num_known)..end.min(num_known)];
            pass.token_ids.extend_from_slice(known);
            let guessed = start.saturating_sub(num_known)..end.saturating_sub(num_known);
            pass.token_ids.extend_from_slice(&guesses[guessed]);
            append_positions(&mut pass.meta, (start, end), block_ids, *block_size, Vec::new());
            text.num_computed = end;
            if end == last {
                pass.draws.push((pass.token_ids.len() as u32 - 1, index));
            }
            end == last
        });
        pass
    }

    /// Computes a pass and appends the guesses.
    fn run(
        &self,
        pass: &Pass,
        cache: &mut KvCache,
        wanted: &mut [Wanted<'_>],
    ) -> Result<(), ExecuteError> {
        let model = &self.model;
        let Some(lm_head) = model.lm_head.as_deref() else { return Ok(()) };
        let rows: Result<Vec<_>, ExecuteError> = pass
            .draws
            .iter()
            .map(|&(_, index)| {
                let Wanted { sequence, guesses, .. } = &wanted[index];
                // The model's own draw, so that noise and temperature are the same.
                let mut row = sampling_row(sequence, 0, None)?;
                row.position += guesses.len() as u64;
                row.num_logprobs = None;
                Ok(row)
            })
            .collect();
        let rows = rows?;
        let last_rows: Vec<u32> = pass.draws.iter().map(|&(row, _)| row).collect();
        let mut drawn = Vec::new();
        let computed = self.threads.run(|| -> Result<(), KernelError> {
            let embedded: Tensor<2> = model.backbone.embed(&pass.token_ids, Adapters::none());
            let mut step = Step::new(&pass.meta, cache);
            let hidden =
                model.backbone.forward(embedded, Positions::of_text(&pass.meta), &mut step);
            match last_rows.is_empty() {
                true => Ok(()),
                false => sample_tensor(
                    lm_head.logits(hidden, &last_rows, Adapters::none()),
                    &rows,
                    &mut drawn,
                ),
            }
        });
        computed.map_err(execute_error)?;
        for (&(_, index), drawn) in pass.draws.iter().zip(drawn) {
            // Logits that are not finite make no guess.
            if let Ok(drawn) = drawn {
                wanted[index].guesses.push(drawn.token_id);
            }
        }
        Ok(())
    }
}

impl Drafter for ModelDrafter {
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        // A thread that hangs may still hold the cache.
        let kv_memory = Arc::clone(&self.cache.kv_memory);
        let Some(mut kv_memory) = kv_memory.try_lock() else { return Ok(GuessTime::default()) };
        for Wanted { sequence, .. } in wanted.iter() {
            let text = self.texts.entry(sequence.request.id).or_default();
            text.num_computed = text.num_right(&sequence.token_ids);
        }
        let (mut active, mut time): (Vec<usize>, _) =
            ((0..wanted.len()).collect(), GuessTime::default());
        timed("draft model", || -> Result<(), ExecuteError> {
            loop {
                let begun = Instant::now();
                let pass = self.next_pass(wanted, &mut active);
                if pass.token_ids.is_empty() {
                    return Ok(());
                }
                self.run(&pass, &mut kv_memory.cache, wanted)?;
                if pass.reads_little() {
                    time.add(pass.draws.len(), begun.elapsed());
                }
                // A draw that failed would be tried for ever.
                active.retain(|&index| {
                    let text = self.texts.get(&wanted[index].sequence.request.id);
                    let num_tokens = wanted[index].sequence.token_ids.len();
                    let num_after = num_tokens + wanted[index].guesses.len();
                    text.is_some_and(|text| text.num_computed < num_after)
                });
            }
        })?;
        for Wanted { sequence, guesses, is_reading, .. } in wanted.iter_mut() {
            if let Some(text) = self.texts.get_mut(&sequence.request.id) {
                text.num_known = sequence.token_ids.len();
                text.guesses.clone_from(guesses);
                *is_reading = text.num_computed < text.num_known;
            }
        }
        Ok(time)
    }

    /// Each guess needs the tokens before it computed.
    fn room(&self, num_tokens: usize) -> usize {
        (self.model.max_model_len + 1).saturating_sub(num_tokens)
    }

    fn forget(&mut self, sequence: &Sequence, _is_ended: bool) {
        self.texts.remove(&sequence.request.id);
    }
}

impl Text {
    /// Returns how many of a request's tokens are computed. The last token has to be computed
    /// again if it is among them, because a guess needs its logits.
    fn num_right(&self, tokens: &[TokenId]) -> usize {
        let later = tokens.get(self.num_known..).unwrap_or_default();
        let is_right = |(token, guess): &(&TokenId, &TokenId)| token == guess;
        let num_right = later.iter().zip(&self.guesses).take_while(is_right).count();
        self.num_computed.min(self.num_known + num_right).min(tokens.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_after_a_wrong_guess_are_computed_again() {
        let text = Text { num_computed: 6, num_known: 4, guesses: vec![14, 15, 16] };
        let num_right = |tokens: &[TokenId]| text.num_right(tokens);
        assert_eq!(num_right(&[10, 11, 12, 13, 14, 15, 16, 17]), 6, "the last was not computed");
        assert_eq!(num_right(&[10, 11, 12, 13, 14, 99, 1]), 5);
        assert_eq!(num_right(&[10, 11, 12, 13, 99]), 4);
        assert_eq!(num_right(&[10, 11, 12, 13]), 3, "its logits are needed again");
        assert_eq!(Text::default().num_right(&[10, 11]), 0);
    }
}
