//! The begin of a step, and its end as work for the worker.

use std::sync::Arc;

use super::{
    PauseState, Scheduled, Scheduler, StepStats,
    flight::{InFlight, InFlightRow},
    planning::{Phase, Planning, Row},
    request_state::Status,
};
use crate::{
    error::ActorError,
    logic::{
        planted::{Bug, planted},
        request::{
            FinishReason,
            failure::Failure,
            ids::Micros,
            outputs::{Commit, Produced},
        },
        scheduler::output::{CachedRequestData, NewRequestData, SchedulerOutput},
    },
};

impl Scheduler {
    /// Begins the next step. Requests that have not begun before their deadline are ended.
    ///
    /// # Errors
    /// [`ActorError::Invariant`] while another step is being planned. Also while another step is
    /// computed, unless this one [can be planned ahead](Scheduler::can_plan_ahead).
    pub fn begin_step(&mut self, now: Micros) -> Result<(), ActorError> {
        let is_free = self.flight.steps.is_empty() || self.can_plan_ahead();
        if self.planning.is_some() || !is_free {
            let what = format!("a step was begun while step {} is under way", self.step.0);
            return Err(ActorError::Invariant(what));
        }
        self.flight.planned_ahead_of = self.step_in_flight();
        self.flight.must_settle = false;
        self.step.0 += 1;
        self.now = now;
        self.compact_running();
        if self.outbox.reset_requested == Some(true) {
            self.requeue_all();
        }
        let ended = self.expire(now);
        let is_stopped = self.pause == PauseState::PausedAll;
        let waited_for = std::mem::take(&mut self.queues.waiting_reason);
        let mut planning = Box::new(Planning {
            now,
            phase: Phase::Running,
            cursor: 0,
            token_budget: if is_stopped { 0 } else { self.token_budget },
            cohort: self.active_cohort().cloned(),
            dominant: self.dominant(),
            most_tokens: self.most_tokens(),
            rows: Vec::with_capacity(self.queues.running.len()),
            num_admitting: 0,
            looked_up: None,
            has_preempted: false,
            is_short: false,
            is_tight: false,
            ended,
            prefix_cache_reset: None,
            finish_later: Vec::new(),
            stats: StepStats::default(),
            pending: Vec::new(),
            is_answered: true,
            round: 0,
        });
        self.make_room(&mut planning, waited_for);
        self.planning = Some(planning);
        Ok(())
    }

    /// Ends planning and returns the planned step.
    ///
    /// # Errors
    /// [`ActorError::Invariant`] if no step has begun, or if its last plan is not answered.
    pub fn finish_step(&mut self) -> Result<Scheduled, ActorError> {
        let planning = self.planning.take().filter(|planning| planning.is_answered);
        let Some(mut planning) = planning else {
            let what = format!("step {} is not planned to its end", self.step.0);
            return Err(ActorError::Invariant(what));
        };
        let mut output = SchedulerOutput {
            epoch: self.epoch,
            step: self.step,
            preempted: std::mem::take(&mut self.outbox.preempted),
            finished: std::mem::take(&mut self.outbox.finished),
            ..SchedulerOutput::default()
        };
        let rows = std::mem::take(&mut planning.rows);
        // Running requests were planned first, but new ones come first in the output.
        let num_cached = rows.iter().filter(|row| !row.is_new).count();
        let mut in_flight = Vec::with_capacity(rows.len());
        output.scheduled_cached.reserve(num_cached);
        for row in rows {
            in_flight.push(self.emit(&mut output, &mut planning.stats, row));
        }
        in_flight.rotate_left(num_cached);
        if !output.is_empty() {
            self.flight.steps.push_back(InFlight { step: self.step, rows: in_flight });
        }
        for id in std::mem::take(&mut planning.finish_later) {
            self.finish_now(id);
        }
        planning.stats.num_scheduled_tokens = output.total_num_scheduled_tokens;
        let Planning { ended, prefix_cache_reset, stats, .. } = *planning;
        Ok(Scheduled { output, ended, prefix_cache_reset, stats })
    }

    /// Turns a row into work, and counts its tokens as computed. Returns the row in flight.
    fn emit(
        &mut self,
        output: &mut SchedulerOutput,
        stats: &mut StepStats,
        row: Row,
    ) -> InFlightRow {
        let Row { slot, num_computed_tokens, num_tokens, num_lookahead, .. } = row;
        let Row { is_new, block_ids, .. } = row;
        // Guesses may be wrong, so they are not known to be computed.
        let certain_start = self.certain_start(slot, num_computed_tokens);
        let keeps_guesses = self.demand.keeps_guesses();
        let state = &mut self.requests[slot];
        let end = num_computed_tokens + num_tokens;
        let certain_end = end - num_lookahead - state.num_guesses;
        let first_new = state.max_computed_tokens.clamp(certain_start, certain_end);
        stats.recomputed_tokens += first_new - certain_start;
        let prompt_end = state.request.num_prompt_tokens().min(certain_end);
        stats.prompt_tokens_computed += prompt_end.saturating_sub(first_new);
        state.num_computed_tokens = if keeps_guesses { end } else { end - num_lookahead };
        state.max_computed_tokens = state.max_computed_tokens.max(certain_end);
        state.first_step.get_or_insert(self.step);
        let request = state.request.id;
        let num_draws = match state.num_remaining() {
            0 => 1 + num_lookahead,
            _ => 0,
        };
        state.num_drawing += num_draws;
        state.num_guesses += num_lookahead;
        if is_new {
            output.scheduled_new.push(NewRequestData {
                request: Arc::clone(&state.request),
                output_token_ids: state.output_token_ids.clone(),
                block_ids,
                num_computed_tokens,
                num_scheduled_tokens: num_tokens,
            });
        } else {
            output.scheduled_cached.push(CachedRequestData {
                request,
                new_block_ids: block_ids,
                num_computed_tokens,
                num_scheduled_tokens: num_tokens,
                num_lookahead_tokens: num_lookahead,
            });
        }
        output.total_num_scheduled_tokens += num_tokens;
        InFlightRow { slot, request, start: certain_start, num_draws, is_answered: false }
    }

    /// Returns the largest number of tokens for one request in this step. The threshold applies
    /// only if a long prompt would delay other requests.
    fn most_tokens(&self) -> usize {
        let num_waiting = match self.pause {
            PauseState::Unpaused => self.queues.waiting.len(),
            PauseState::PausedNew | PauseState::PausedAll => 0,
        };
        let num_candidates =
            (self.queues.running.len() + num_waiting).min(self.config.max_num_seqs);
        match self.config.long_prefill_token_threshold {
            0 => usize::MAX,
            _ if num_candidates <= 1 => usize::MAX,
            threshold => threshold,
        }
    }

    fn expire(&mut self, now: Micros) -> Vec<Commit> {
        let mut ended = Vec::new();
        if planted(Bug::IgnoreDeadline) {
            return ended;
        }
        while let Some(&(_, id)) =
            self.queues.deadlines.first().filter(|(deadline, _)| *deadline <= now)
        {
            self.queues.deadlines.pop_first();
            let Some(slot) = self.requests.find(id) else { continue };
            let state = &self.requests[slot];
            let has_begun = !state.output_token_ids.is_empty();
            let waits = matches!(state.status, Status::Waiting(_) | Status::WaitingFor(..));
            if waits && !has_begun {
                self.end(slot, false);
                ended.push(Commit {
                    request: id,
                    position: 0,
                    produced: Produced::default(),
                    prompt_logprobs: None,
                    finish: Some(FinishReason::Error(Failure::DeadlineExceeded)),
                });
            }
        }
        ended
    }

    /// Preempts all running requests. They return to the queue in the order in which they ran.
    fn requeue_all(&mut self) {
        for slot in std::mem::take(&mut self.queues.running).into_iter().rev() {
            self.requeue(slot, false);
        }
        self.queues.running_is_dirty = false;
    }
}
