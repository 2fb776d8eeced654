//! No actor waits for a timer when it has a reason to act.

use super::Checker;
use crate::{
    fault::Observed,
    logic::ledger::LedgerEvent,
    message::{Edge, edge::edge},
};

const DEVICE_TO_WORKER: Edge = edge!(Device -> Worker);
const WORKER_TO_SCHEDULER: Edge = edge!(Worker -> Scheduler);
const STRUCTURED_OUTPUT_TO_SCHEDULER: Edge = edge!(StructuredOutput -> Scheduler);

impl Checker {
    /// Checks, in a run without faults, that no actor waits for a timer. A reason to plan a step
    /// leads to a step before any time passes.
    pub(super) fn check_wakeup(&self, what: &Observed<'_>) {
        // A process needs other tasks before it has a message.
        if !self.is_calm || self.num_engines > 0 {
            return;
        }
        let now = self.record.now();
        let mut state = self.state.lock();
        // If all requests have ended meanwhile, there is nothing to plan.
        let is_wanted = state.num_live > 0;
        if let Some(since) = state.due_since.filter(|&since| since < now && is_wanted) {
            self.record.violate(|| format!("no step was planned though one was due at {since} µs"));
            state.due_since = None;
        }
        match what {
            Observed::Message { edge: DEVICE_TO_WORKER, .. } => {
                let computes = state.given.pop_front().unwrap_or_default();
                state.num_computed += usize::from(computes);
            }
            // Other messages of the worker give no reason. Neither does a result if the next step
            // is already being computed.
            Observed::Message { edge: WORKER_TO_SCHEDULER, .. } if state.num_computed > 0 => {
                state.num_computed -= 1;
                state.num_computing -= 1;
                state.due_since = (state.num_computing == 0).then_some(now);
            }
            Observed::Ledger { event: LedgerEvent::Accepted { .. }, .. }
            | Observed::Message { edge: STRUCTURED_OUTPUT_TO_SCHEDULER, .. }
                if state.num_computing == 0 =>
            {
                state.due_since = Some(now);
            }
            Observed::Step { output } => {
                state.num_computing += usize::from(!output.is_empty());
                if output.has_news() {
                    state.given.push_back(!output.is_empty());
                }
                state.due_since = None;
            }
            _ => {}
        }
    }
}
