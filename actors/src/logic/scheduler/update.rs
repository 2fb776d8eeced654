//! What the worker computed becomes tokens, and perhaps a request's end.

use super::{Scheduler, request_state::Status, request_table::Slot, stop_check::finish_reason};
use crate::{
    fault::{Bug, planted},
    logic::{
        ids::{Micros, RequestId},
        outputs::{Commit, PromptLogprobs, RequestOutput, StepOutput},
        request::FinishReason,
    },
};

/// Ends a request whose logits were no numbers, twice.
const NUMERICAL_GARBAGE: &str = "numerical_garbage";

impl Scheduler {
    /// Takes the results of the step in flight; gives what is now certain. Results of another
    /// epoch or step, and of requests that no longer run, are counted and dropped.
    pub fn update_from_output(&mut self, output: StepOutput, now: Micros) -> Vec<Commit> {
        let is_awaited = output.epoch == self.epoch && self.step_in_flight() == Some(output.step)
            || planted(Bug::AnyStep);
        let Some(in_flight) = self.in_flight.take_if(|_| is_awaited) else {
            // A step without rows may be answered, but nobody waits for it.
            self.num_stale += u64::from(!output.outputs.is_empty());
            return Vec::new();
        };
        self.now = now;
        self.completed_step = Some(output.step);
        let mut commits = Vec::with_capacity(output.outputs.len());
        for (index, row) in output.outputs.into_iter().enumerate() {
            // The worker answers in the order of the output, which saves the search.
            let hint = in_flight.rows.get(index).filter(|(_, id)| *id == row.request);
            let slot = hint.map(|&(slot, _)| slot).or_else(|| self.requests.find(row.request));
            let slot = slot.filter(|&slot| self.requests[slot].scheduled_step == Some(output.step));
            match slot {
                Some(slot) if self.requests[slot].status == Status::Running => {
                    commits.extend(self.update_row(slot, row));
                }
                Some(slot) if !row.is_nan => {
                    self.requests[slot].scheduled_step = None;
                    self.num_stale += 1;
                }
                _ => self.num_stale += 1,
            }
        }
        for (slot, id) in in_flight.rows {
            // Left out, or given up and garbage: what it left in the cache cannot be used.
            let state = &self.requests[slot];
            if state.scheduled_step == Some(output.step) {
                match state.status {
                    Status::Running => commits.extend(self.retry(slot)),
                    _ => self.discard_freed(id),
                }
            }
        }
        self.compact_running();
        commits
    }

    fn update_row(&mut self, slot: Slot, row: RequestOutput) -> Option<Commit> {
        let state = &self.requests[slot];
        let is_complete = state.num_remaining() == 0;
        if let Some(error) = row.grammar_error {
            // It would fail again. What it left in the cache is good.
            return Some(self.end_with(slot, false, FinishReason::Error(error)));
        }
        if row.is_nan || is_complete && row.sampled.is_empty() {
            return self.retry(slot);
        }
        self.pass_media(slot);
        let state = &mut self.requests[slot];
        state.scheduled_step = None;
        let position = state.output_token_ids.len();
        let mut tokens = if is_complete { row.sampled } else { Vec::new() };
        let mut finish = None;
        for index in 0..tokens.len() {
            state.is_retried = false;
            state.output_token_ids.push(tokens[index].token_id);
            finish = finish_reason(&state.request, &state.stop, &state.output_token_ids);
            if finish.is_some() {
                tokens.truncate(index + 1);
                break;
            }
        }
        let request = state.request.id;
        let rows = row.prompt_logprobs;
        let prompt_logprobs =
            rows.and_then(|rows| uncommitted(rows, &mut state.num_prompt_logprobs));
        if finish.is_some() {
            self.end(slot, false);
        }
        let has_news = !tokens.is_empty() || prompt_logprobs.is_some();
        has_news.then_some(Commit { request, position, tokens, prompt_logprobs, finish })
    }

    /// The request was given up while it was computed, and what it computed is not known.
    fn discard_freed(&mut self, id: RequestId) {
        self.frees
            .iter_mut()
            .filter(|(freed, _)| *freed == id)
            .for_each(|(_, discard)| *discard = true);
    }

    /// What the request computed cannot be used, nor can what it left in the cache. It begins
    /// again without reading the prefix cache; the second time it ends.
    fn retry(&mut self, slot: Slot) -> Option<Commit> {
        let state = &mut self.requests[slot];
        state.scheduled_step = None;
        if !std::mem::replace(&mut state.is_retried, true) {
            self.requeue(slot, true);
            return None;
        }
        Some(self.end_with(slot, true, FinishReason::Error(NUMERICAL_GARBAGE.into())))
    }

    /// Ends a request that runs, with no further token.
    fn end_with(&mut self, slot: Slot, discard: bool, finish: FinishReason) -> Commit {
        let state = &mut self.requests[slot];
        state.scheduled_step = None;
        let (request, position) = (state.request.id, state.output_token_ids.len());
        self.end(slot, discard);
        let (tokens, finish) = (Vec::new(), Some(finish));
        Commit { request, position, tokens, prompt_logprobs: None, finish }
    }
}

/// Leaves out the rows that were committed before, when a prompt is computed again.
fn uncommitted(rows: PromptLogprobs, num_committed: &mut usize) -> Option<PromptLogprobs> {
    let PromptLogprobs { start, mut rows } = rows;
    let first = *num_committed + 1;
    let known = first.saturating_sub(start).min(rows.len());
    rows.drain(..known);
    *num_committed += rows.len();
    (!rows.is_empty()).then_some(PromptLogprobs { start: start + known, rows })
}
