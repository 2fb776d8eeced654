//! The step being planned: a state machine. Its requests to the KV cache manager are data.
//!
//! A plan is made as if all of it will fit. Rows that follow a refused operation are taken back.
//! This is cheap, because a request does not change before its own operation is confirmed.

use std::ops::Range;

use super::{
    Scheduler, cohort::Cohort, request_state::Status, request_table::Slot, stats::StepStats,
};
use crate::{
    error::ActorError,
    logic::{
        kv_cache::{
            BlockIds, Growth,
            allocation::{AllocateOp, Allocation, AllocationOp, AllocationPlan, AllocationResult},
        },
        request::{
            ids::{Micros, RequestId, Step},
            outputs::Commit,
        },
        scheduler::request_queue::Owner,
    },
};

/// The requests that are being planned now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Running requests, from the cursor on.
    Running,
    /// Waiting requests.
    Waiting,
    Done,
}

/// Whether planning can go on without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    /// The next decision depends on the answer.
    Ask,
}

/// One request's part of the step.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) slot: Slot,
    pub(super) num_computed_tokens: usize,
    /// Number of tokens to compute, with the guesses.
    pub(super) num_tokens: usize,
    /// Number of places for guesses among them.
    pub(super) num_lookahead: usize,
    /// Whether the worker holds no state of the request.
    pub(super) is_new: bool,
    /// Blocks appended to the request's table.
    pub(super) block_ids: BlockIds,
}

/// The purpose of an operation of the last plan.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pending {
    Free,
    Touch,
    Reset,
    Lookup {
        slot: Slot,
    },
    /// More blocks for a running request, which is at `cursor` in the running list.
    Grow {
        row: usize,
        cursor: usize,
        growth: Growth,
    },
    Admit {
        row: usize,
        growth: Growth,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Planning {
    pub(super) now: Micros,
    pub(super) phase: Phase,
    /// The next running request to look at.
    pub(super) cursor: usize,
    pub(super) token_budget: usize,
    /// The only requests that may be scheduled.
    pub(super) cohort: Option<Cohort>,
    /// The owner of most of the seats or blocks. Requests of other owners are admitted first.
    pub(super) dominant: Option<Owner>,
    /// Largest number of tokens for one request.
    pub(super) most_tokens: usize,
    pub(super) rows: Vec<Row>,
    /// Number of rows whose requests are not certain to be admitted.
    pub(super) num_admitting: usize,
    /// The head of the queue and its number of hit tokens.
    pub(super) looked_up: Option<(Slot, usize)>,
    pub(super) has_preempted: bool,
    /// Whether a running request found no block and has to wait for the step in flight. No other
    /// request gets a block either.
    pub(super) is_short: bool,
    /// Whether blocks for guesses were refused. The rest of the step has no guesses.
    pub(super) is_tight: bool,
    pub(super) ended: Vec<Commit>,
    pub(super) prefix_cache_reset: Option<bool>,
    pub(super) finish_later: Vec<RequestId>,
    pub(super) stats: StepStats,
    /// One for each operation of the last plan.
    pub(super) pending: Vec<Pending>,
    /// Whether the last plan is answered.
    pub(super) is_answered: bool,
    pub(super) round: u32,
}

impl Planning {
    pub(super) fn ask(&mut self, ops: &mut Vec<AllocationOp>, op: AllocationOp, pending: Pending) {
        ops.push(op);
        self.pending.push(pending);
    }
}

impl Scheduler {
    /// Returns the next plan for the KV cache manager. Returns `None` if the step is planned, or if
    /// the last plan is not answered.
    pub fn next_plan(&mut self) -> Option<AllocationPlan> {
        let mut planning = self.planning.take()?;
        let plan = planning.is_answered.then(|| self.make_plan(&mut planning)).flatten();
        planning.is_answered &= plan.is_none();
        self.planning = Some(planning);
        plan
    }

    /// Takes the answer to the last plan. An answer to another plan is counted and dropped.
    ///
    /// # Errors
    /// [`ActorError::Invariant`] if the answer does not match the plan.
    pub fn apply(&mut self, allocation: Allocation) -> Result<(), ActorError> {
        let Some(mut planning) = self.planning.take() else {
            self.num_stale += 1;
            return Ok(());
        };
        let result = self.apply_to(&mut planning, allocation);
        self.planning = Some(planning);
        result
    }

    fn make_plan(&mut self, planning: &mut Planning) -> Option<AllocationPlan> {
        let mut ops = Vec::new();
        self.ask_frees(planning, &mut ops);
        if self.outbox.reset_requested.take().is_some() {
            planning.ask(&mut ops, AllocationOp::ResetPrefixCache, Pending::Reset);
        }
        self.ask_touches(planning, &mut ops);
        loop {
            let flow = match planning.phase {
                Phase::Running => self.plan_running(planning, &mut ops),
                Phase::Waiting => self.plan_waiting(planning, &mut ops),
                Phase::Done => break,
            };
            if flow == Flow::Ask {
                break;
            }
        }
        // The manager must learn of a new epoch, because otherwise it would keep the old one's
        // tables. It must also learn that blocks are full, because only then do they survive a
        // crash.
        let is_full =
            |step: &mut Step| self.flight.completed_step.is_some_and(|done| *step <= done);
        let seals = self.flight.unsealed_step.take_if(is_full).is_some();
        let is_wanted = !ops.is_empty() || self.outbox.is_new_epoch || seals;
        self.outbox.is_new_epoch = false;
        is_wanted.then_some(AllocationPlan {
            epoch: self.epoch,
            step: self.step,
            round: planning.round,
            completed_step: self.flight.completed_step,
            ops,
        })
    }

    pub(super) fn ask_frees(&mut self, planning: &mut Planning, ops: &mut Vec<AllocationOp>) {
        let in_flight = &self.flight.steps;
        self.outbox.frees.retain(|freed| {
            // A request in a running step keeps its blocks: the result decides whether they may be
            // reused.
            let mut rows = in_flight.iter().flat_map(|step| &step.rows);
            let is_kept = rows.any(|row| row.request == freed.request);
            if !is_kept {
                planning.ask(ops, freed.op(), Pending::Free);
            }
            is_kept
        });
    }

    fn apply_to(
        &mut self,
        planning: &mut Planning,
        allocation: Allocation,
    ) -> Result<(), ActorError> {
        let Allocation { epoch, step, round, results, usage, .. } = allocation;
        let is_awaited = (epoch, step, round) == (self.epoch, self.step, planning.round);
        if !is_awaited || planning.is_answered {
            self.num_stale += 1;
            return Ok(());
        }
        planning.round += 1;
        planning.is_answered = true;
        self.kv_cache_usage = usage;
        let pending = std::mem::take(&mut planning.pending);
        let is_cut = results.last() == Some(&AllocationResult::Refused);
        if results.len() != pending.len() && !is_cut {
            return Err(mismatch(&pending, &results));
        }
        for (&pending, result) in pending.iter().zip(results) {
            self.apply_one(planning, pending, result)?;
        }
        Ok(())
    }

    fn apply_one(
        &mut self,
        planning: &mut Planning,
        pending: Pending,
        result: AllocationResult,
    ) -> Result<(), ActorError> {
        match (pending, result) {
            (Pending::Free, AllocationResult::Freed)
            | (Pending::Touch, AllocationResult::Touched) => {}
            (Pending::Reset, AllocationResult::Reset(done)) => {
                planning.prefix_cache_reset = Some(done);
            }
            (Pending::Lookup { slot }, AllocationResult::Hit { num_tokens }) => {
                planning.looked_up = Some((slot, num_tokens));
            }
            (Pending::Grow { row, growth, .. }, AllocationResult::Allocated { block_ids }) => {
                self.confirm(planning, row, growth, block_ids);
            }
            (Pending::Admit { row, growth }, AllocationResult::Allocated { block_ids }) => {
                self.confirm(planning, row, growth, block_ids);
                self.admit(planning, row);
            }
            (Pending::Grow { row, cursor, .. }, AllocationResult::Refused) => {
                self.refuse_growth(planning, row, cursor);
            }
            (Pending::Admit { row, .. }, AllocationResult::Refused) => {
                self.refuse_admission(planning, row);
            }
            (pending, result) => return Err(mismatch(&[pending], &[result])),
        }
        Ok(())
    }

    /// Records that the blocks of a row are allocated.
    fn confirm(
        &mut self,
        planning: &mut Planning,
        row: usize,
        growth: Growth,
        block_ids: BlockIds,
    ) {
        self.requests[planning.rows[row].slot].held.grow(growth);
        self.flight.unsealed_step =
            self.flight.unsealed_step.max(growth.fills().then_some(self.step));
        planning.rows[row].block_ids = block_ids;
    }

    /// Plans a row. Its tokens are charged to the tenant at once, so that another tenant has the
    /// next turn.
    pub(super) fn push_row(&mut self, planning: &mut Planning, row: Row) {
        // A prompt that is computed whole may be longer than a reduced budget.
        planning.token_budget = planning.token_budget.saturating_sub(row.num_tokens);
        self.queues.waiting.charge(self.requests[row.slot].request.tenant, row.num_tokens);
        planning.rows.push(row);
    }

    /// Takes back the rows from `first` on, because their operations were not executed.
    pub(super) fn take_back_rows(&mut self, planning: &mut Planning, first: usize) {
        for row in planning.rows.drain(first..) {
            planning.token_budget = (planning.token_budget + row.num_tokens).min(self.token_budget);
            let state = &mut self.requests[row.slot];
            self.queues.waiting.refund(state.request.tenant, row.num_tokens);
            if let Status::Admitting(key) = state.status {
                self.queues.waiting.reinsert(key, state.request.arrival, row.slot);
                state.status = Status::Waiting(key);
                planning.num_admitting -= 1;
            }
        }
    }

    /// Returns the blocks that a request needs and fills when a step computes these of its tokens.
    /// Returns `None` if its table has room, no block becomes full, and its tail is not new.
    pub(super) fn allocate_op(
        &mut self,
        slot: Slot,
        tokens: Range<usize>,
        num_hit_tokens: usize,
    ) -> Option<AllocateOp> {
        let (num_computed_tokens, num_tokens) = (tokens.start, tokens.end);
        // If guesses in flight are wrong, the step begins before its first token.
        let num_certain = self.certain_start(slot, num_computed_tokens);
        let state = &mut self.requests[slot];
        // A block is named by its tokens. A block with a token that is not sampled yet is filled
        // later.
        let num_known = num_tokens.min(state.num_tokens());
        let filled = match self.config.enable_prefix_caching {
            true => self.demand.filled(&state.held, num_hit_tokens, num_known),
            false => 0..0,
        };
        let catches_up = self.config.enable_prefix_caching
            && self.demand.has_tails()
            && state.reads_prefix_cache()
            && num_tokens >= state.num_tokens()
            && state.num_drawing == 0;
        let is_known = filled.is_empty() && (!catches_up || state.held.has_tail());
        if is_known && state.held.has_room(num_tokens) {
            return None;
        }
        let num_settled_tokens = match self.config.enable_prefix_caching {
            true => self.demand.settled(&state.held, num_hit_tokens, num_certain),
            false => num_certain,
        };
        let full_blocks = match filled.is_empty() {
            true => Vec::new(),
            false => {
                let (chain, content) = state.chain();
                chain.full_blocks(filled, &content, &self.naming)
            }
        };
        Some(AllocateOp {
            request: state.request.id,
            num_tokens,
            num_hit_tokens,
            num_settled_tokens,
            num_tokens_to_fit: num_tokens,
            spare_blocks: 0,
            full_blocks,
            catches_up,
        })
    }
}

fn mismatch(pending: &[Pending], results: &[AllocationResult]) -> ActorError {
    ActorError::Invariant(format!(
        "the KV cache manager answered {results:?} where {pending:?} was asked"
    ))
}
