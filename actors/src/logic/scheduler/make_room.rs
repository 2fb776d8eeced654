//! Room for others beside a dominant owner, which holds more than half of the seats or of the KV
//! cache. An owner is a tenant or a request of many choices. Requests of other owners are admitted
//! before its own. A request whose owner runs nothing need not wait until one of them ends: the
//! dominant owner's last request is preempted and computed again later. A request of one choice
//! without a tenant is never dominant.

use super::{PauseState, Scheduler, WaitingReason, planning::Planning, request_table::Slot};
use crate::logic::{
    request::ids::Micros,
    scheduler::request_queue::{Owner, SchedulingPolicy},
};

impl Scheduler {
    /// Returns the owner of several running requests that together hold more than half of all seats
    /// or blocks. Returns `None` if there is no such owner, or if no request waits.
    pub(super) fn dominant(&self) -> Option<Owner> {
        if self.queues.waiting.is_empty() {
            return None;
        }
        let by_seats = self.majority(self.config.max_num_seqs, |_| 1);
        by_seats.or_else(|| self.dominant_in_blocks())
    }

    /// Does the same for blocks alone, even if no request waits.
    pub(super) fn dominant_in_blocks(&self) -> Option<Owner> {
        let num_blocks = self.demand.num_usable_blocks();
        self.majority(num_blocks, |slot| self.requests[slot].held.num_blocks())
    }

    /// Returns the place in the running list of the owner's least important request, if the owner
    /// has several.
    pub(super) fn last_to_give(&self, owner: Owner, now: Micros) -> Option<usize> {
        let mut places =
            (0..self.queues.running.len()).filter(|&p| self.owner(self.queues.running[p]) == owner);
        places.clone().nth(1)?;
        match self.config.policy {
            SchedulingPolicy::Fcfs => places.next_back(),
            SchedulingPolicy::Priority => places.max_by_key(|&place| {
                self.queues.waiting.rank(&self.requests[self.queues.running[place]].request, now)
            }),
        }
    }

    /// Preempts one request of the dominant owner if the next waiting request of another owner
    /// needs the room. It needs the room if the step before had no seat or blocks left for it, and
    /// its owner runs nothing. No request is preempted while a step computes it, so the next step
    /// waits for the step in flight.
    pub(super) fn make_room(&mut self, planning: &mut Planning, waited_for: WaitingReason) {
        let is_short = matches!(waited_for, WaitingReason::MaxNumSeqs | WaitingReason::KvCache);
        let is_open = self.pause == PauseState::Unpaused && planning.cohort.is_none();
        let Some(dominant) = planning.dominant.filter(|_| is_short && is_open) else { return };
        let Some((_, next)) = self.queues.waiting.peek_apart(dominant, planning.now) else {
            return;
        };
        let runs = |owner| self.queues.running.iter().any(|&slot| self.owner(slot) == owner);
        let last = self.last_to_give(dominant, planning.now);
        let Some(place) = last.filter(|_| !runs(self.owner(next))) else { return };
        let priority = |slot: Slot| self.requests[slot].request.priority;
        if priority(self.queues.running[place]) < priority(next) {
            return;
        }
        if self.flight.steps.is_empty() {
            self.preempt(planning, place);
        } else {
            self.flight.must_settle = true;
        }
    }

    /// Returns the owner of several running requests that together hold more than half of `total`.
    fn majority(&self, total: usize, weight: impl Fn(Slot) -> usize) -> Option<Owner> {
        // The majority vote of Boyer and Moore: an owner of more than half is left when all others
        // have cancelled out.
        let (mut candidate, mut lead) = (None, 0);
        for &slot in &self.queues.running {
            let (owner, weight) = (self.owner(slot), weight(slot));
            if candidate == Some(owner) {
                lead += weight;
            } else if weight > lead {
                (candidate, lead) = (Some(owner), weight - lead);
            } else {
                lead -= weight;
            }
        }
        let (mut count, mut held) = (0, 0);
        for &slot in self.queues.running.iter().filter(|&&slot| Some(self.owner(slot)) == candidate)
        {
            count += 1;
            held += weight(slot);
        }
        candidate.filter(|_| count > 1 && 2 * held > total)
    }

    fn owner(&self, slot: Slot) -> Owner {
        Owner::of(&self.requests[slot].request)
    }
}
