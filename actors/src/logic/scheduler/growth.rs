//! Running requests: each gets its tokens, in order. If there are too few blocks, one request is
//! preempted.

use super::{
    Scheduler,
    planning::{Flow, Pending, Phase, Planning, Row},
    request_state::Status,
    request_table::Slot,
    stats::WaitingReason,
};
use crate::logic::{
    kv_cache::{BlockIds, allocation::AllocationOp},
    planted::{Bug, planted},
    request::{
        FinishReason,
        outputs::{Commit, Produced},
    },
    scheduler::request_queue::SchedulingPolicy,
};

impl Scheduler {
    pub(super) fn plan_running(
        &mut self,
        planning: &mut Planning,
        ops: &mut Vec<AllocationOp>,
    ) -> Flow {
        while planning.cursor < self.queues.running.len() && planning.token_budget > 0 {
            let slot = self.queues.running[planning.cursor];
            if planning.cohort.is_some() && planning.excludes(self.id_at(planning.cursor)) {
                planning.cursor += 1;
                continue;
            }
            if self.requests[slot].will_be_full() {
                planning.cursor += 1;
                continue;
            }
            if planning.is_short && self.needs_blocks(planning, slot) {
                planning.cursor += 1;
                continue;
            }
            let has_media = self.has_media_ahead(slot);
            let row = self.next_row(planning, slot, has_media);
            planning.cursor += 1;
            if row.num_tokens == 0 {
                continue;
            }
            let start = row.num_computed_tokens;
            let op = self.allocate_op(slot, start..start + row.num_tokens, 0);
            let index = planning.rows.len();
            self.push_row(planning, row);
            let Some(op) = op else { continue };
            let growth = self.demand.growth(&self.requests[slot].held, &op);
            let pending = Pending::Grow { row: index, cursor: planning.cursor - 1, growth };
            planning.ask(ops, AllocationOp::Allocate(op), pending);
        }
        planning.phase = Phase::Waiting;
        Flow::Continue
    }

    /// Returns whether the request's next row asks for blocks.
    fn needs_blocks(&self, planning: &Planning, slot: Slot) -> bool {
        let state = &self.requests[slot];
        let num_tokens = state.num_remaining().min(planning.most_tokens).min(planning.token_budget);
        !state.held.has_room(state.num_computed_tokens + num_tokens)
    }

    fn next_row(&mut self, planning: &Planning, slot: Slot, has_media: bool) -> Row {
        let state = &self.requests[slot];
        let num_computed_tokens = state.num_computed_tokens;
        let most = planning.most_tokens.min(planning.token_budget);
        let mut num_tokens = state.num_remaining().min(most);
        if has_media {
            num_tokens = self.media_window(slot, num_computed_tokens, num_tokens);
            let budget = planning.token_budget;
            num_tokens = self.whole_items(slot, num_computed_tokens, num_tokens, budget);
        }
        let state = &self.requests[slot];
        if self.has_open_row(state) && num_tokens < state.num_remaining() {
            num_tokens = 0;
        }
        let num_lookahead = self.num_lookahead(planning, slot, num_tokens);
        Row {
            slot,
            num_computed_tokens,
            num_tokens: num_tokens + num_lookahead,
            num_lookahead,
            is_new: false,
            block_ids: BlockIds::default(),
        }
    }

    /// Handles a running request that does not fit: the last one is preempted, which may be the
    /// same request.
    pub(super) fn refuse_growth(&mut self, planning: &mut Planning, row: usize, cursor: usize) {
        let is_for_guesses = planning.rows[row].num_lookahead > 0;
        self.take_back_rows(planning, row);
        planning.phase = Phase::Running;
        planning.cursor = cursor;
        planning.looked_up = None;
        if is_for_guesses {
            // The request may have room for its own token.
            planning.is_tight = true;
            return;
        }
        if !self.flight.steps.is_empty() && !planted(Bug::PreemptInFlight) {
            // The step in flight may end other requests, and a request in a step must not be
            // preempted. Requests behind this one that have their blocks need not wait for the
            // step.
            self.flight.must_settle = true;
            planning.is_short = true;
            planning.cursor = cursor + 1;
            return;
        }
        if let [only] = self.queues.running[..] {
            self.end_full(planning, only);
            return;
        }
        let Some(place) = self.victim_place(planning) else { return };
        self.preempt(planning, place);
        planning.has_preempted = true;
        self.queues.waiting_reason = WaitingReason::Preemption;
    }

    pub(super) fn preempt(&mut self, planning: &mut Planning, place: usize) {
        let victim = self.queues.running.remove(place);
        if place < planning.cursor {
            planning.cursor -= 1;
            self.take_back_scheduled(planning, victim);
        }
        self.requeue(victim, false);
        self.num_preemptions += 1;
        planning.stats.preempted.push(self.requests[victim].request.id);
    }

    /// Returns the place in the running list of the least important request: one that is not
    /// scheduled now, if there is any. It is never the first of the list (under priority, the first
    /// by rank) while there is another. The first one therefore goes on, and so all requests do in
    /// the end.
    pub(super) fn victim_place(&self, planning: &Planning) -> Option<usize> {
        let all = 0..self.queues.running.len();
        let is_excluded = |&place: &usize| planning.excludes(self.id_at(place));
        let spares_members = planning.cohort.is_some() && all.clone().any(|p| is_excluded(&p));
        let mut places = all.filter(|place| !spares_members || is_excluded(place));
        match self.config.policy {
            SchedulingPolicy::Fcfs => {
                let dominant = self.dominant_in_blocks();
                let last = dominant.and_then(|owner| self.last_to_give(owner, planning.now));
                last.filter(|place| places.clone().any(|p| p == *place)).or(places.next_back())
            }
            SchedulingPolicy::Priority => places.max_by_key(|&place| {
                let request = &self.requests[self.queues.running[place]].request;
                self.queues.waiting.rank(request, planning.now)
            }),
        }
    }

    /// Takes back the victim's row if this step has one. Its tokens go to other requests.
    fn take_back_scheduled(&mut self, planning: &mut Planning, victim: Slot) {
        let Some(index) = planning.rows.iter().position(|row| row.slot == victim) else { return };
        let row = planning.rows.remove(index);
        planning.token_budget += row.num_tokens;
        self.queues.waiting.refund(self.requests[victim].request.tenant, row.num_tokens);
    }

    /// Ends a request that has the whole cache for itself and still does not fit.
    fn end_full(&mut self, planning: &mut Planning, slot: Slot) {
        self.end_uncomputed(planning, slot, FinishReason::Length);
        self.compact_running();
        planning.cursor = 0;
    }

    /// Ends a request by a commit without tokens.
    pub(super) fn end_uncomputed(
        &mut self,
        planning: &mut Planning,
        slot: Slot,
        reason: FinishReason,
    ) {
        let state = &self.requests[slot];
        debug_assert!(!matches!(state.status, Status::Finished), "it ended before");
        planning.ended.push(Commit {
            request: state.request.id,
            position: state.output_token_ids.len(),
            produced: Produced::default(),
            prompt_logprobs: None,
            finish: Some(reason),
        });
        self.end(slot, false);
    }
}
