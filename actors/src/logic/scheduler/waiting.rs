//! Waiting requests: the first one that may start does so as soon as there is room. No other
//! request overtakes it.

use std::sync::Arc;

use super::{
    PauseState, Scheduler,
    planning::{Flow, Pending, Phase, Planning, Row},
    request_queue::QueueKey,
    request_state::Status,
    request_table::Slot,
    stats::{FirstScheduled, WaitingReason},
};
use crate::logic::{
    kv_cache::{
        BlockIds,
        allocation::{AllocateOp, AllocationOp},
    },
    planted::{Bug, planted},
    request::{FinishReason, failure::Failure, media::MultimodalFeature},
};

impl Scheduler {
    pub(super) fn plan_waiting(
        &mut self,
        planning: &mut Planning,
        ops: &mut Vec<AllocationOp>,
    ) -> Flow {
        if let Some(reason) = self.why_closed(planning) {
            return self.close(planning, ops, reason);
        }
        let Some((key, slot)) = self.next_waiting(planning) else {
            let reason = match self.queues.waiting.is_empty() {
                true => self.queues.waiting_reason,
                false => WaitingReason::Suspects,
            };
            return self.close(planning, ops, reason);
        };
        if self.waits_for_resumed(planning, slot) {
            return self.close(planning, ops, WaitingReason::Recovery);
        }
        if let Some(reason) = self.why_never(slot) {
            self.end_uncomputed(planning, slot, reason);
            // No operation may come between a lookup and its allocation.
            self.ask_frees(planning, ops);
            return Flow::Continue;
        }
        let num_hit_tokens = match planning.looked_up {
            Some((found, num_tokens)) if found == slot => num_tokens,
            _ => match self.lookup_op(planning, slot) {
                None => 0,
                Some(op) => {
                    planning.ask(ops, op, Pending::Lookup { slot });
                    return Flow::Ask;
                }
            },
        };
        match self.first_row(planning, slot, num_hit_tokens) {
            Err(WaitingReason::EncoderCache) => {
                self.wait_for_media(planning, key, slot);
                Flow::Continue
            }
            Err(reason) => self.close(planning, ops, reason),
            Ok(row) => {
                self.try_admit(planning, ops, key, row);
                Flow::Continue
            }
        }
    }

    fn close(
        &mut self,
        planning: &mut Planning,
        ops: &mut Vec<AllocationOp>,
        reason: WaitingReason,
    ) -> Flow {
        if self.make_way(planning) {
            // The blocks must be freed before any operation asks for the room.
            self.ask_frees(planning, ops);
            return Flow::Continue;
        }
        self.queues.waiting_reason = reason;
        planning.phase = Phase::Done;
        Flow::Continue
    }

    /// Returns the reason why no request is admitted now, or `None` if one may be.
    fn why_closed(&self, planning: &Planning) -> Option<WaitingReason> {
        let num_running = self.queues.running.len() + planning.num_admitting;
        let is_early = self.queues.last_admission.is_some_and(|last| {
            last != self.step && self.step.0 - last.0 < self.config.prefill_schedule_interval
        });
        // Requests outside the cohort are in the running list, but they do not go on.
        let goes_on = match planning.cohort {
            Some(_) => !planning.rows.is_empty(),
            None => num_running > 0,
        };
        if self.pause != PauseState::Unpaused {
            Some(WaitingReason::Paused)
        } else if planning.has_preempted {
            Some(WaitingReason::Preemption)
        } else if planning.is_short {
            Some(WaitingReason::KvCache)
        } else if is_early && goes_on {
            Some(WaitingReason::PrefillInterval)
        } else if num_running >= self.config.max_num_seqs {
            Some(WaitingReason::MaxNumSeqs)
        } else if planning.token_budget == 0 {
            Some(WaitingReason::TokenBudget)
        } else {
            None
        }
    }

    /// Returns whether a prompt waits for a later step, because a crash has interrupted the outputs
    /// of others. Their clients have waited for the step that was lost, and whole prompts make a
    /// step several times as long. The first step resumes these requests alone, the next one also
    /// begins two prompts, and each later step twice as many. Suspects follow this rule, too: those
    /// without an output begin when the others have been cleared by their tokens.
    fn waits_for_resumed(&self, planning: &Planning, slot: Slot) -> bool {
        let has_begun = |slot: Slot| !self.requests[slot].output_token_ids.is_empty();
        let most = self.most_new_prompts();
        let are_enough = most >= self.config.max_num_seqs;
        if !self.queues.resumes || are_enough || has_begun(slot) {
            return false;
        }
        let num_new = planning.rows.iter().filter(|row| row.is_new && !has_begun(row.slot)).count();
        num_new >= most && planning.rows.iter().any(|row| has_begun(row.slot))
    }

    /// Returns the number of prompts that this step may begin after a crash: 0, 2, 4, 8 and so on.
    /// The lost step had one or two of them in most cases.
    fn most_new_prompts(&self) -> usize {
        let first = self.queues.first_admission.unwrap_or(self.step);
        let shift = u32::try_from(self.step.0.saturating_sub(first.0)).unwrap_or(u32::MAX);
        match shift {
            0 => 0,
            shift => 1_usize.checked_shl(shift).unwrap_or(usize::MAX),
        }
    }

    /// Returns the end of a request that would wait for ever, or `None`. It would do so if it
    /// outgrew the cache before a crash, or was added without [`Scheduler::check_servable`].
    fn why_never(&self, slot: Slot) -> Option<FinishReason> {
        let (config, state) = (&self.config, &self.requests[slot]);
        if !self.demand.fits(state.num_tokens()) {
            return Some(match state.output_token_ids.is_empty() {
                true => FinishReason::Error(Failure::Unservable),
                false => FinishReason::Length,
            });
        }
        let items = &state.request.mm_features;
        let is_too_long = |item: &MultimodalFeature| item.length > config.max_num_batched_tokens;
        let are_whole = config.disable_chunked_mm_input || config.largest_whole_item > 0;
        let is_too_large = config.most_embeds_at_once(items) > config.encoder_cache_size
            || are_whole && items.iter().any(is_too_long);
        is_too_large.then_some(FinishReason::Error(Failure::Unservable))
    }

    /// Asks for the blocks of resumed requests to be reused last. Without this, the first of them
    /// could take blocks from the others before those look them up.
    pub(super) fn ask_touches(&mut self, planning: &mut Planning, ops: &mut Vec<AllocationOp>) {
        for request in std::mem::take(&mut self.outbox.resumed) {
            let slot = self.requests.find(request);
            let lookup = slot.and_then(|slot| self.lookup_op(planning, slot));
            if let Some(AllocationOp::Lookup { request, block_hashes, max_tokens, .. }) = lookup {
                let touch = AllocationOp::Touch { request, block_hashes, max_tokens };
                planning.ask(ops, touch, Pending::Touch);
            }
        }
    }

    /// Returns a lookup of prefix hits, or `None` if there can be none. The last token is never a
    /// hit, because its logits are needed. A suspect that is alone does not use its tail: a failed
    /// step may have damaged that block, and another failure alone would convict the request.
    fn lookup_op(&mut self, planning: &Planning, slot: Slot) -> Option<AllocationOp> {
        let state = &mut self.requests[slot];
        let max_tokens = state.num_tokens() - usize::from(!planted(Bug::HitLastToken));
        let may_hit = self.config.enable_prefix_caching && state.reads_prefix_cache();
        let is_alone = planning.cohort.as_ref().is_some_and(|cohort| cohort.len() == 1);
        let with_tail = state.held.has_tail() && !is_alone;
        if !may_hit || !with_tail && !self.demand.has_full_block(max_tokens) {
            return None;
        }
        let request = state.request.id;
        let (chain, content) = state.chain();
        let block_hashes = Arc::clone(chain.hashes(max_tokens, &content, &self.naming));
        Some(AllocationOp::Lookup { request, block_hashes, max_tokens, with_tail })
    }

    fn first_row(
        &mut self,
        planning: &Planning,
        slot: Slot,
        num_hit_tokens: usize,
    ) -> Result<Row, WaitingReason> {
        let mut num_tokens = self.num_first_tokens(planning, slot, num_hit_tokens)?;
        // Also if a longer hit, which is gone by now, had all items behind it.
        if self.has_media(slot) {
            let window = self.media_window(slot, num_hit_tokens, num_tokens);
            let is_short = self.config.computes_whole_prompts() && window < num_tokens;
            num_tokens = if is_short { 0 } else { window };
            if num_tokens == 0 {
                return Err(WaitingReason::EncoderCache);
            }
            let budget = planning.token_budget;
            num_tokens = self.whole_items(slot, num_hit_tokens, num_tokens, budget);
            if num_tokens == 0 {
                return Err(WaitingReason::TokenBudget);
            }
        }
        let (num_computed_tokens, block_ids) = (num_hit_tokens, BlockIds::default());
        Ok(Row { slot, num_computed_tokens, num_tokens, num_lookahead: 0, is_new: true, block_ids })
    }

    /// Returns the number of tokens that a request begins with.
    fn num_first_tokens(
        &self,
        planning: &Planning,
        slot: Slot,
        num_hit_tokens: usize,
    ) -> Result<usize, WaitingReason> {
        let (left, budget) =
            (self.requests[slot].num_tokens() - num_hit_tokens, planning.token_budget);
        if self.config.computes_whole_prompts() {
            // A reduced budget may be smaller than the prompt, which then has a step of its own.
            let fits = left <= budget || left > self.token_budget && planning.rows.is_empty();
            return if fits { Ok(left) } else { Err(WaitingReason::TokenBudget) };
        }
        let wanted = left.min(planning.most_tokens);
        // A reduced budget may be smaller than the whole prompt. The prompt is then computed in
        // parts, even without chunked prefill.
        let in_parts = self.config.enable_chunked_prefill || wanted > self.token_budget;
        match in_parts || wanted <= budget {
            true => Ok(wanted.min(budget)),
            false => Err(WaitingReason::TokenBudget),
        }
    }

    /// Takes the request out of the queue and asks for its blocks.
    fn try_admit(
        &mut self,
        planning: &mut Planning,
        ops: &mut Vec<AllocationOp>,
        key: QueueKey,
        row: Row,
    ) {
        let (slot, num_hit_tokens) = (row.slot, row.num_computed_tokens);
        let others_run = self.queues.running.len() + planning.num_admitting > 0;
        let num_tokens = num_hit_tokens + row.num_tokens;
        let tokens = num_hit_tokens..num_tokens;
        let Some(op) = self.allocate_op(slot, tokens, num_hit_tokens) else { return };
        let growth = self.demand.growth(&self.requests[slot].held, &op);
        let num_tokens_to_fit = match self.config.reserve_full_isl {
            true => self.requests[slot].num_tokens(),
            false => num_tokens,
        };
        let spare_blocks =
            if others_run { self.demand.blocks_in(self.config.watermark) } else { 0 };
        let op = AllocateOp { num_tokens_to_fit, spare_blocks, ..op };
        let state = &mut self.requests[slot];
        self.queues.waiting.take(key, state.request.arrival);
        state.status = Status::Admitting(key);
        planning.looked_up = None;
        planning.num_admitting += 1;
        let pending = Pending::Admit { row: planning.rows.len(), growth };
        self.push_row(planning, row);
        planning.ask(ops, AllocationOp::Allocate(op), pending);
    }

    /// Moves the request of a row, which fits, to the running list.
    pub(super) fn admit(&mut self, planning: &mut Planning, row: usize) {
        let Row { slot, num_computed_tokens: num_hit_tokens, .. } = planning.rows[row];
        planning.num_admitting -= 1;
        self.queues.first_admission.get_or_insert(self.step);
        self.queues.last_admission = Some(self.step);
        self.queues.running.push(slot);
        let may_hit = self.config.enable_prefix_caching;
        let state = &mut self.requests[slot];
        state.status = Status::Running;
        state.num_computed_tokens = num_hit_tokens;
        state.max_computed_tokens = state.max_computed_tokens.max(num_hit_tokens);
        planning.stats.adopted_tail_tokens += self.demand.tail_tokens(num_hit_tokens);
        if std::mem::replace(&mut state.was_scheduled, true) {
            return;
        }
        let stats = &mut planning.stats;
        if may_hit && state.reads_prefix_cache() {
            stats.prefix_cache_queries += state.num_tokens();
            stats.prefix_cache_hits += num_hit_tokens;
        }
        stats.prompt_tokens_cached += num_hit_tokens;
        stats.first_scheduled.push(FirstScheduled {
            request: state.request.id,
            queue_time: planning.now.saturating_sub(state.request.arrival),
            num_cached_tokens: num_hit_tokens,
        });
    }

    /// Puts the request of a row, which does not fit, back in its place. The requests behind it
    /// wait as well.
    pub(super) fn refuse_admission(&mut self, planning: &mut Planning, row: usize) {
        self.take_back_rows(planning, row);
        if self.make_way(planning) {
            return;
        }
        planning.phase = Phase::Done;
        planning.looked_up = None;
        self.queues.waiting_reason = WaitingReason::KvCache;
    }
}
