//! The worker's results become tokens or pooled results, and perhaps a request's end.

use super::{
    Scheduler,
    flight::{InFlight, InFlightRow},
    request_state::Status,
    request_table::Slot,
    stop_check::finish_reason,
};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        FinishReason,
        failure::Failure,
        ids::{Micros, RequestId, Step},
        outputs::{
            Commit, Produced, PromptLogprobs, RequestOutput, RowFailure, SampledTokens, StepOutput,
        },
    },
};

impl Scheduler {
    /// Takes the results of the next step in flight, and returns the new tokens and ends. Results
    /// of another epoch or step, and of requests that no longer run, are counted and dropped.
    pub fn update_from_output(&mut self, output: StepOutput, now: Micros) -> Vec<Commit> {
        let is_awaited = output.epoch == self.epoch && self.step_in_flight() == Some(output.step)
            || planted(Bug::AnyStep);
        let in_flight = if is_awaited { self.flight.steps.pop_front() } else { None };
        let Some(InFlight { step, mut rows }) = in_flight else {
            // A step without rows may be answered, but no plan waits for the answer.
            self.num_stale += u64::from(!output.outputs.is_empty());
            return Vec::new();
        };
        self.now = now;
        self.flight.completed_step = Some(output.step);
        let mut commits = Vec::with_capacity(output.outputs.len());
        for (index, row) in output.outputs.into_iter().enumerate() {
            // The worker answers in the order of the output, which saves the search.
            let is_it = |planned: &InFlightRow| planned.request == row.request;
            let place = match rows.get(index).is_some_and(is_it) {
                true => Some(index),
                false => rows.iter().position(is_it),
            };
            let Some(planned) = place.map(|place| &mut rows[place]) else {
                self.num_stale += 1;
                continue;
            };
            if self.is_wanted(planned, step) {
                planned.is_answered = true;
                if let Some(commit) = self.update_row(*planned, row) {
                    commits.push(commit);
                }
            } else {
                planned.is_answered |= row.failure != Some(RowFailure::NotANumber);
                self.num_stale += 1;
            }
        }
        for planned in rows.iter().filter(|planned| !planned.is_answered) {
            // The row is missing, or its request was aborted and the result is garbage. Its content
            // in the cache cannot be used.
            if self.is_wanted(planned, step) {
                commits.extend(self.retry(planned.slot));
            } else {
                self.discard_freed(planned.request);
            }
        }
        self.compact_running();
        commits
    }

    /// Returns whether the request still runs as it did when `step` was planned.
    fn is_wanted(&self, planned: &InFlightRow, step: Step) -> bool {
        let state = self.requests.get(planned.slot, planned.request);
        !planned.is_answered
            && state.is_some_and(|state| {
                let is_since = state.first_step.is_some_and(|first| first <= step);
                state.status == Status::Running && is_since
            })
    }

    fn update_row(&mut self, planned: InFlightRow, row: RequestOutput) -> Option<Commit> {
        let InFlightRow { slot, num_draws, .. } = planned;
        match row.failure {
            Some(RowFailure::Adapter(error)) => {
                let failure = Failure::Adapter(error);
                return Some(self.end_with(slot, true, FinishReason::Error(failure)));
            }
            Some(RowFailure::Grammar(error)) => {
                // A retry would fail again. The request's content in the cache is good.
                let failure = Failure::InvalidGrammar(error);
                return Some(self.end_with(slot, false, FinishReason::Error(failure)));
            }
            Some(RowFailure::NotANumber | RowFailure::Media) => return self.retry(slot),
            None => {}
        }
        let is_pooling = self.requests[slot].request.pooling().is_some();
        let num_results = match &row.produced {
            // A result of the other kind of work is no result.
            Produced::Tokens(tokens) if !is_pooling => tokens.len(),
            Produced::Pooled(_) if is_pooling => 1,
            Produced::Tokens(_) | Produced::Pooled(_) => 0,
        };
        let Some(num_rejected) = planned.num_rejected(num_results) else {
            return self.retry(slot);
        };
        let state = &mut self.requests[slot];
        state.num_drawing -= num_draws;
        state.num_wanted_guesses = row.drafts.num_wanted as usize;
        self.pass_media(slot);
        let state = &mut self.requests[slot];
        if num_draws > 0 && is_pooling {
            let request = state.request.id;
            let finish = (!planted(Bug::PoolWithoutEnd)).then_some(FinishReason::Stop(None));
            self.end(slot, false);
            let (position, produced, prompt_logprobs) = (0, row.produced, None);
            return Some(Commit { request, position, produced, prompt_logprobs, finish });
        }
        let position = state.output_token_ids.len();
        let mut tokens =
            if num_draws > 0 { row.produced.into_tokens() } else { SampledTokens::new() };
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
        self.settle_guesses(planned, num_rejected, row.drafts.num_drafted as usize);
        let state = &mut self.requests[slot];
        let request = state.request.id;
        let rows = row.prompt_logprobs;
        let prompt_logprobs =
            rows.and_then(|rows| uncommitted(rows, &mut state.num_prompt_logprobs));
        if finish.is_some() {
            self.end(slot, false);
        }
        if tokens.is_empty() && prompt_logprobs.is_none() {
            return None;
        }
        let produced = Produced::Tokens(tokens);
        Some(Commit { request, position, produced, prompt_logprobs, finish })
    }

    /// Discards the content of a request that was aborted while it was computed, because its result
    /// is not known.
    fn discard_freed(&mut self, id: RequestId) {
        for freed in self.outbox.frees.iter_mut().filter(|freed| freed.request == id) {
            freed.discard = true;
            // No request may hit the content before the manager learns of this.
            self.flight.must_settle = true;
        }
    }

    /// Retries a request whose result and content in the cache cannot be used. It begins again
    /// without reading the prefix cache. The second time it ends, and the commit is returned.
    fn retry(&mut self, slot: Slot) -> Option<Commit> {
        // The step planned ahead may contain the request, and others that hit its content.
        self.flight.must_settle = !planted(Bug::NeverSettle);
        let state = &mut self.requests[slot];
        if !std::mem::replace(&mut state.is_retried, true) {
            self.requeue(slot, true);
            return None;
        }
        Some(self.end_with(slot, true, FinishReason::Error(Failure::NumericalGarbage)))
    }

    /// Ends a running or waiting request without a further token, and returns the commit.
    pub(super) fn end_with(&mut self, slot: Slot, discard: bool, finish: FinishReason) -> Commit {
        let state = &self.requests[slot];
        let (request, position) = (state.request.id, state.output_token_ids.len());
        self.end(slot, discard);
        let (produced, finish) = (Produced::default(), Some(finish));
        Commit { request, position, produced, prompt_logprobs: None, finish }
    }
}

/// Returns the rows that were not committed before. A prompt that is computed again repeats rows.
fn uncommitted(rows: PromptLogprobs, num_committed: &mut usize) -> Option<PromptLogprobs> {
    let PromptLogprobs { start, mut rows } = rows;
    let first = *num_committed + 1;
    let known = first.saturating_sub(start).min(rows.len());
    rows.drain(..known);
    *num_committed += rows.len();
    (!rows.is_empty()).then_some(PromptLogprobs { start: start + known, rows })
}
