//! Failed steps: the requests that are suspected or convicted, and the size of the next step.

use std::collections::BTreeSet;

use super::Ledger;
use crate::logic::{
    failure::Failure,
    ids::{Micros, RequestId},
    planted::{Bug, planted},
    quarantine::Fingerprint,
    request::FinishReason,
};

/// The limits on the scheduler while steps fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// The only requests that may be scheduled. `None` allows all requests.
    pub cohort: Option<BTreeSet<RequestId>>,
    /// Largest number of tokens in a step.
    pub token_budget: usize,
}

impl Ledger {
    /// Returns the current limits on the scheduler.
    #[must_use]
    pub fn restriction(&self) -> Restriction {
        let cohort = self.ward.cohort().cloned();
        Restriction { cohort, token_budget: self.step_budget.tokens() }
    }

    /// Records that a step failed, perhaps because of one of its requests. Each request comes with
    /// its number of computed tokens after the step. Returns the requests that were convicted; this
    /// has ended them.
    ///
    /// A request is not convicted if it used tokens whose commit has not arrived. It would end
    /// without tokens that it gets in a run without failures. The next epoch samples these tokens
    /// again.
    pub fn step_failed(&mut self, requests: &[(RequestId, usize)], now: Micros) -> Vec<RequestId> {
        let mut batch = Vec::with_capacity(requests.len());
        let mut is_committed = true;
        for &(request, num_tokens) in requests {
            let Some(entry) = self.entries.get(&request).filter(|e| e.end().is_none()) else {
                continue;
            };
            let committed = entry.request().prompt_token_ids.len() + entry.output().len();
            is_committed &= num_tokens <= committed;
            batch.push(request);
        }
        let num_live = self.entries.values().filter(|entry| entry.end().is_none()).count();
        let convicted = self.ward.step_failed(&batch, num_live, is_committed);
        for &request in &convicted {
            if let Some(entry) = self.entries.get(&request) {
                self.quarantine.convict(Fingerprint::of(entry.request()), now);
            }
            self.finish(request, FinishReason::Error(Failure::Quarantined), now);
        }
        convicted
    }

    /// Records that a step needed more memory than there is. The next step is half as large.
    /// Returns `false` if it cannot be smaller.
    pub fn out_of_memory(&mut self) -> bool {
        planted(Bug::SameStepAgain) || self.step_budget.out_of_memory()
    }

    /// Records that a step was computed.
    pub fn step_succeeded(&mut self) {
        self.ward.step_succeeded();
        self.step_budget.step_succeeded();
    }
}
