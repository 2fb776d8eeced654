//! Guesses by a head over the model's hidden states.
//!
//! After each step, the drafter gets the hidden states of the tokens that the step computed. Row
//! `p` of the head is the hidden state of token `p` with token `p + 1`. The rows of a request wait
//! until it has guesses, because a batch without guesses should not pay for the head. Many rows,
//! for example those of a prompt, are read at once.
//!
//! The head's keys and values lie in a cache of its own, under the block ids of the model's cache.
//! Rows of a prefix hit are those that an earlier request left there. Nothing relies on the
//! content: a wrong one only makes wrong guesses.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::request::ids::{RequestId, TokenId},
    ports::ExecuteError,
};
use playhouse_kernels::{
    AttentionMetadata, KernelError, KvCache, profile::timed, sampling::sample_tensor, select_rows,
};

use super::{Computed, DraftCache, Drafter, GuessTime, Wanted};
use crate::{
    executor::{
        batch::{Sequence, append_positions},
        execute_error,
        sampler::sampling_row,
        threads::ComputeThreads,
    },
    model::{DraftHead, HeadInput, HeadRows},
};

/// Most rows of a request that wait.
const WAITING_ROWS_MAX: usize = 16;

/// The drafter of one executor.
pub(in crate::executor) struct HeadDrafter {
    head: Arc<DraftHead>,
    cache: DraftCache,
    threads: ComputeThreads,
    texts: BTreeMap<RequestId, Text>,
}

/// The rows of a request.
#[derive(Debug, Default)]
struct Text {
    /// Number of rows whose keys and values are in the head's cache.
    num_read: usize,
    /// The hidden states of the rows after them, row-major.
    waiting: Vec<f32>,
}

/// One pass of the head over rows of several requests.
#[derive(Default)]
struct Pass {
    token_ids: Vec<TokenId>,
    meta: AttentionMetadata,
    /// The last row of each request.
    last_rows: Vec<u32>,
}

impl HeadDrafter {
    pub(in crate::executor) fn new(
        head: Arc<DraftHead>,
        cache: DraftCache,
        threads: ComputeThreads,
    ) -> Self {
        Self { head, cache, threads, texts: BTreeMap::new() }
    }

    /// Returns whether a head keeps keys and values.
    fn has_cache(&self) -> bool {
        !self.head.kv_layers.windows.is_empty()
    }

    /// Returns whether there is room for rows of a request up to the position `end`.
    fn has_room(&self, sequence: &Sequence, end: usize) -> bool {
        let DraftCache { group, block_size, .. } = self.cache;
        let num_slots = sequence.block_ids.group(group).len() * block_size;
        end <= self.head.max_model_len && (end <= num_slots || !self.has_cache())
    }

    /// Appends rows from `start` to `end` of a request to a pass. Its tokens are those after them.
    fn append(&self, pass: &mut Pass, sequence: &Sequence, rows: (usize, usize), next: &[TokenId]) {
        let DraftCache { group, block_size, .. } = self.cache;
        if pass.meta.query_start_loc.is_empty() {
            pass.meta.query_start_loc.push(0);
        }
        pass.token_ids.extend_from_slice(next);
        if self.has_cache() {
            let block_ids = sequence.block_ids.group(group);
            append_positions(&mut pass.meta, rows, block_ids, block_size, Vec::new());
        }
        pass.last_rows.push(pass.token_ids.len() as u32 - 1);
    }

    /// Reads the waiting rows of requests, but not the last row of each, because a guess needs it.
    fn read_waiting(&mut self, sequences: &[&Sequence]) -> Result<(), ExecuteError> {
        let kv_memory = Arc::clone(&self.cache.kv_memory);
        let Some(mut kv_memory) = kv_memory.try_lock() else { return Ok(()) };
        let (width, mut pass, mut values) = (self.head.row_width(), Pass::default(), Vec::new());
        for sequence in sequences {
            let Some(text) = self.texts.get(&sequence.request.id) else { continue };
            let (start, end) = (text.num_read, text.end(width).saturating_sub(1));
            let next = sequence.token_ids.get(start + 1..end + 1).unwrap_or_default();
            if next.is_empty() || !self.has_room(sequence, end) {
                continue;
            }
            values.extend_from_slice(&text.waiting[..(end - start) * width]);
            self.append(&mut pass, sequence, (start, end), next);
        }
        if !pass.token_ids.is_empty() {
            self.threads.run(|| {
                let rows = self.head.rows(values);
                drop(self.states(&pass, 0, rows, &mut kv_memory.cache));
            });
        }
        for sequence in sequences {
            if let Some(text) = self.texts.get_mut(&sequence.request.id) {
                text.keep_last(width);
            }
        }
        Ok(())
    }

    fn states(
        &self,
        pass: &Pass,
        num_guesses: usize,
        states: Tensor<2>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        let rows = HeadRows { num_guesses, token_ids: &pass.token_ids, states };
        self.head.forward(rows, &pass.meta, cache)
    }

    /// Returns whether the waiting rows of a request end before its last token, which is not
    /// computed.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let text = self.texts.get(&sequence.request.id);
        text.is_some_and(|text| {
            let end = text.end(self.head.row_width());
            end > text.num_read && end + 1 == sequence.token_ids.len()
        })
    }

    /// Returns the first pass: all waiting rows of the requests of these indices, and their states.
    fn first_pass(&self, wanted: &[Wanted<'_>], active: &[usize]) -> (Pass, Tensor<2>) {
        let (mut pass, mut values) = (Pass::default(), Vec::new());
        for Wanted { sequence, .. } in active.iter().map(|&index| &wanted[index]) {
            let Some(text) = self.texts.get(&sequence.request.id) else { continue };
            let (start, end) = (text.num_read, sequence.token_ids.len() - 1);
            values.extend_from_slice(&text.waiting);
            self.append(&mut pass, sequence, (start, end), &sequence.token_ids[start + 1..]);
        }
        (pass, self.head.rows(values))
    }

    /// Returns the pass over the last guess of each of these requests.
    fn next_pass(&self, wanted: &[Wanted<'_>], active: &[usize]) -> Pass {
        let mut pass = Pass::default();
        for Wanted { sequence, guesses, .. } in active.iter().map(|&index| &wanted[index]) {
            let end = sequence.token_ids.len() - 1 + guesses.len();
            let last = guesses.last().map(std::slice::from_ref).unwrap_or_default();
            self.append(&mut pass, sequence, (end - 1, end), last);
        }
        pass
    }

    /// Makes guesses for the requests of the indices `active`, one more in each pass.
    fn guess(
        &self,
        wanted: &mut [Wanted<'_>],
        mut active: Vec<usize>,
        cache: &mut KvCache,
    ) -> Result<(), ExecuteError> {
        let (mut pass, mut states) = self.threads.run(|| self.first_pass(wanted, &active));
        for num_guesses in 0..self.head.max_guesses {
            let (computed, drawn) = self.threads.run(|| -> Result<_, ExecuteError> {
                let computed = self.states(&pass, num_guesses, states, cache);
                let logits = self.head.logits(num_guesses, computed.clone(), &pass.last_rows);
                Ok((computed, draw(logits, wanted, &active)?))
            })?;
            let mut left = Vec::new();
            let of_active = active.iter().zip(&pass.last_rows).zip(drawn);
            let mut rows = Vec::new();
            for ((&index, &row), drawn) in of_active {
                // Logits that are not finite make no guess.
                let Some(token) = drawn else { continue };
                let Wanted { sequence, most, guesses, .. } = &mut wanted[index];
                guesses.push(token);
                let end = sequence.token_ids.len() - 1 + guesses.len();
                if guesses.len() < *most && self.has_room(sequence, end) {
                    left.push(index);
                    rows.push(row);
                }
            }
            if left.is_empty() {
                break;
            }
            active = left;
            pass = self.next_pass(wanted, &active);
            states = self.threads.run(|| select_rows(computed, &rows));
        }
        Ok(())
    }
}

/// Draws a token for each of the requests `active` from its row of `logits`, with the model's own
/// noise and parameters. A row without a token has none.
fn draw(
    logits: Tensor<2>,
    wanted: &[Wanted<'_>],
    active: &[usize],
) -> Result<Vec<Option<TokenId>>, ExecuteError> {
    let rows = active.iter().map(|&index| {
        let Wanted { sequence, guesses, .. } = &wanted[index];
        let mut row = sampling_row(sequence, 0, None)?;
        row.position += guesses.len() as u64;
        row.num_logprobs = None;
        Ok(row)
    });
    let rows = rows.collect::<Result<Vec<_>, ExecuteError>>()?;
    let mut drawn = Vec::new();
    let sampled: Result<(), KernelError> = sample_tensor(logits, &rows, &mut drawn);
    sampled.map_err(execute_error)?;
    Ok(drawn.into_iter().map(|drawn| drawn.ok().map(|drawn| drawn.token_id)).collect())
}

impl Drafter for HeadDrafter {
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        let begun = Instant::now();
        // A thread that hangs may still hold the cache.
        let kv_memory = Arc::clone(&self.cache.kv_memory);
        let Some(mut kv_memory) = kv_memory.try_lock() else { return Ok(GuessTime::default()) };
        let is_active = |index: &usize| {
            let Wanted { sequence, .. } = &wanted[*index];
            self.is_ready(sequence) && self.has_room(sequence, sequence.token_ids.len() - 1)
        };
        let active: Vec<usize> = (0..wanted.len()).filter(is_active).collect();
        if active.is_empty() {
            return Ok(GuessTime::of_all(wanted, begun));
        }
        timed("draft head", || self.guess(wanted, active, &mut kv_memory.cache))?;
        let width = self.head.row_width();
        for Wanted { sequence, .. } in wanted.iter().filter(|wanted| !wanted.guesses.is_empty()) {
            if let Some(text) = self.texts.get_mut(&sequence.request.id) {
                text.keep_last(width);
            }
        }
        Ok(GuessTime::of_all(wanted, begun))
    }

    fn input(&self) -> Option<&HeadInput> {
        Some(&self.head.input)
    }

    fn read(&mut self, computed: &[Computed<'_>]) -> Result<(), ExecuteError> {
        let (width, has_cache) = (self.head.row_width(), self.has_cache());
        let mut long = Vec::new();
        for Computed { sequence, start, rows } in computed {
            let text = self.texts.entry(sequence.request.id).or_default();
            text.append(*start, rows, width);
            if !has_cache {
                text.keep_last(width);
            } else if text.waiting.len() > WAITING_ROWS_MAX * width {
                long.push(*sequence);
            }
        }
        match long.is_empty() {
            true => Ok(()),
            false => timed("draft head", || self.read_waiting(&long)),
        }
    }

    /// Each guess needs the row before it, which is a token behind the text.
    fn room(&self, num_tokens: usize) -> usize {
        (self.head.max_model_len + 2).saturating_sub(num_tokens)
    }

    fn forget(&mut self, sequence: &Sequence, _is_ended: bool) {
        self.texts.remove(&sequence.request.id);
    }
}

impl Text {
    /// Returns the position after the last row.
    fn end(&self, width: usize) -> usize {
        self.num_read + self.waiting.len() / width.max(1)
    }

    /// Appends the rows of the positions from `start` on. Rows before `start` that are missing came
    /// from a prefix hit, and rows after it are computed again.
    fn append(&mut self, start: usize, rows: &[f32], width: usize) {
        if start < self.num_read || start > self.end(width) {
            *self = Self { num_read: start, waiting: Vec::new() };
        }
        self.waiting.truncate((start - self.num_read) * width);
        self.waiting.extend_from_slice(rows);
    }

    /// Drops all rows but the last, because the head has read them.
    fn keep_last(&mut self, width: usize) {
        let num_dropped = (self.waiting.len() / width.max(1)).saturating_sub(1);
        self.waiting.drain(..num_dropped * width);
        self.num_read += num_dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_tokens_that_the_model_computed() {
        let mut text = Text::default();
        text.append(0, &[0.0, 0.5, 1.0, 1.5], 2);
        text.append(2, &[2.0, 2.5], 2);
        assert_eq!((text.num_read, text.end(2)), (0, 3));
        text.keep_last(2);
        assert_eq!((text.num_read, &text.waiting[..]), (2, &[2.0, 2.5][..]));
        text.append(3, &[3.0, 3.5], 2);
        assert_eq!((text.num_read, text.end(2)), (2, 4));
        // A request that was preempted begins where a prefix hit ends.
        text.append(16, &[7.0, 7.5], 2);
        assert_eq!((text.num_read, text.end(2)), (16, 17));
        text.append(1, &[9.0, 9.5], 2);
        assert_eq!((text.num_read, &text.waiting[..]), (1, &[9.0, 9.5][..]));
    }
}
