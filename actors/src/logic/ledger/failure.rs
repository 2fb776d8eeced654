//! Failed steps: the requests that are suspected or convicted, and the size of the next step.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Entry, GroundState, Ledger, LedgerEvent, LedgerObserver};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        EngineRequest, FinishReason,
        failure::Failure,
        ids::{EngineIndex, Epoch, Micros, RequestId},
    },
};

/// The limits on the scheduler while steps fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// The only requests that may be scheduled. `None` allows all requests.
    pub cohort: Option<BTreeSet<RequestId>>,
    /// Largest number of tokens in a step.
    pub token_budget: usize,
}

impl<O: LedgerObserver> Ledger<O> {
    /// Records that a step failed. Each request comes with its number of computed tokens after the
    /// step. If a step ran out of memory and the next step can be smaller, no request is suspected.
    /// Ends the requests that the failure convicts, and returns them. Returns `None`, without
    /// effect, if the step belongs to a past epoch.
    ///
    /// No request is convicted if the step used tokens whose commit has not arrived. The request
    /// would end without these tokens, and a run without failures delivers them. The next epoch
    /// samples them again.
    pub fn step_failed(
        &mut self,
        epoch: Epoch,
        requests: &[(RequestId, usize)],
        is_out_of_memory: bool,
        now: Micros,
    ) -> Option<Vec<RequestId>> {
        let engine = self.state.engine_of(epoch)?;
        if is_out_of_memory && self.shrink_step() {
            return Some(Vec::new());
        }
        let (requests, is_committed) = self.state.batch_of(engine, requests);
        let convicted = self.state.convicts(&requests, is_committed);
        self.record(&LedgerEvent::StepFailed { requests, is_committed });
        self.finish(&convicted, &FinishReason::Error(Failure::Quarantined), now);
        Some(convicted)
    }

    /// Halves the token budget of the next step. Returns `false` if it was one token already.
    fn shrink_step(&mut self) -> bool {
        if planted(Bug::SameStepAgain) {
            return true;
        }
        let can_shrink = self.state.can_shrink_step();
        self.record(&LedgerEvent::OutOfMemory);
        can_shrink
    }
}

impl GroundState {
    /// Returns the live requests of an engine that may be the cause if work beside its steps has
    /// ended its process. `needs` says whether a request needs a result of that work. If members of
    /// the cohort do, only they are returned, because no work is begun for others meanwhile.
    /// Requests that need the same result would otherwise never fail alone.
    #[must_use]
    pub fn suspects_beside(
        &self,
        engine: EngineIndex,
        needs: impl Fn(&EngineRequest) -> bool,
    ) -> Vec<RequestId> {
        let live = self.live_of(engine).map(Entry::request);
        let needing: Vec<_> =
            live.filter(|request| needs(request)).map(|request| request.id).collect();
        let cohort = self.restriction(engine).cohort.unwrap_or_default();
        let members: Vec<_> = needing.iter().copied().filter(|id| cohort.contains(id)).collect();
        if members.is_empty() { needing } else { members }
    }

    /// Returns the live requests of an engine's step, and whether it used only committed tokens.
    fn batch_of(
        &self,
        engine: EngineIndex,
        requests: &[(RequestId, usize)],
    ) -> (Vec<RequestId>, bool) {
        let mut batch = Vec::with_capacity(requests.len());
        let mut is_committed = true;
        for &(request, num_tokens) in requests {
            // A request that was given to another engine since is computed there.
            let is_there = |entry: &&Entry| entry.engine() == engine;
            let Some(entry) = self.get_live(request).filter(is_there) else { continue };
            is_committed &= num_tokens <= entry.num_tokens();
            batch.push(request);
        }
        (batch, is_committed)
    }
}
