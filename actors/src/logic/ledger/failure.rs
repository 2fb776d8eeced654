//! When a step fails: who is suspected, who is convicted, how much the next step may take.

use std::collections::BTreeSet;

use super::Ledger;
use crate::{
    fault::{Bug, planted},
    logic::{
        failure::Failure,
        ids::{Micros, RequestId},
        quarantine::Fingerprint,
        request::FinishReason,
    },
};

/// What the scheduler is held to while steps fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// The requests that alone may be scheduled; `None`: everybody.
    pub cohort: Option<BTreeSet<RequestId>>,
    /// Most tokens of a step.
    pub token_budget: usize,
}

impl Ledger {
    /// What the scheduler is held to now.
    #[must_use]
    pub fn restriction(&self) -> Restriction {
        let cohort = self.ward.cohort().cloned();
        Restriction { cohort, token_budget: self.step_budget.tokens() }
    }

    /// A step failed, for a reason that may be one of its requests: each with the number of tokens
    /// that the step would have left computed. Returns those that were convicted, and have ended
    /// with that.
    ///
    /// Who ran on tokens whose commit has not arrived is not convicted: it would end short of
    /// tokens that it has in peace. The next epoch draws them again.
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

    /// A step with these requests needed more memory than there is: the next one is half as large.
    /// False when it cannot be smaller.
    pub fn out_of_memory(&mut self) -> bool {
        planted(Bug::SameStepAgain) || self.step_budget.out_of_memory()
    }

    /// A step was computed.
    pub fn step_succeeded(&mut self) {
        self.ward.step_succeeded();
        self.step_budget.step_succeeded();
    }
}
