//! Reports of the scheduler: which of their commits become permanent.

use std::cmp::Ordering;

use super::{GroundState, Ledger, LedgerEvent, LedgerObserver};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        ids::{Epoch, Micros, RequestId},
        outputs::{Commit, StepReport},
    },
    scheduler::FirstScheduled,
};

/// The result of a [`Commit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitVerdict {
    /// The commit is permanent now.
    Accepted,
    /// The commit comes from a core that was replaced.
    StaleEpoch,
    /// The ledger has seen the commit before.
    Repeated,
    /// An earlier commit is missing.
    Gap,
    /// The request has ended.
    Ended,
    /// The ledger does not have the request, or has it no longer.
    Unknown,
}

/// The consequences of a report for its sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reported {
    /// Requests that the scheduler computes although they have ended.
    pub unwanted: Vec<RequestId>,
    /// Whether tokens before a commit are missing, so that a new epoch must begin.
    pub has_gap: bool,
    /// Number of commits that were stale or repeated.
    pub num_stale: usize,
}

impl<O: LedgerObserver> Ledger<O> {
    /// Records the changes that a step made.
    pub fn report(&mut self, epoch: Epoch, report: StepReport, now: Micros) -> Reported {
        report.first_scheduled.into_iter().for_each(|first| self.scheduled(first));
        if report.is_computed {
            self.record(&LedgerEvent::StepSucceeded);
        }
        let mut reported = Reported::default();
        for commit in report.commits {
            let (request, is_end) = (commit.request, commit.finish.is_some());
            match self.commit(epoch, commit, now) {
                CommitVerdict::Accepted => {}
                CommitVerdict::StaleEpoch | CommitVerdict::Repeated => reported.num_stale += 1,
                CommitVerdict::Gap => reported.has_gap = true,
                // The client left, or a stop string was complete, while the step ran. A scheduler
                // that knows this already receives it again without effect.
                CommitVerdict::Ended | CommitVerdict::Unknown => {
                    reported.unwanted.extend((!is_end).then_some(request));
                }
            }
        }
        reported
    }

    /// Makes new tokens permanent, if they come from the current core and follow the committed
    /// ones.
    pub fn commit(&mut self, epoch: Epoch, commit: Commit, now: Micros) -> CommitVerdict {
        let (verdict, request) = (self.state.judge(epoch, &commit), commit.request);
        if verdict == CommitVerdict::Accepted {
            self.record(&LedgerEvent::Committed { epoch, commit, at: now });
            self.mark_dirty(request);
        }
        verdict
    }

    /// Records that a request left the queue. Only the first time counts, because a replay may hit
    /// more cached tokens.
    fn scheduled(&mut self, first: FirstScheduled) {
        if self.state.get(first.request).is_some_and(|entry| entry.queue_time().is_none()) {
            self.record(&LedgerEvent::Scheduled(first));
        }
    }
}

impl GroundState {
    fn judge(&self, epoch: Epoch, commit: &Commit) -> CommitVerdict {
        let is_stale = |is_current: bool| !is_current && !planted(Bug::NoEpochFence);
        let engine = self.engine_of(epoch);
        if is_stale(engine.is_some()) {
            return CommitVerdict::StaleEpoch;
        }
        let Some(entry) = self.get(commit.request) else { return CommitVerdict::Unknown };
        if entry.end().is_some() {
            return CommitVerdict::Ended;
        }
        // Another engine has the request since.
        if is_stale(engine == Some(entry.engine())) && !planted(Bug::CommitOfFormerEngine) {
            return CommitVerdict::StaleEpoch;
        }
        match commit.position.cmp(&entry.output().len()) {
            Ordering::Less if !planted(Bug::NoDedup) => CommitVerdict::Repeated,
            Ordering::Greater if !planted(Bug::NoGapCheck) => CommitVerdict::Gap,
            _ => CommitVerdict::Accepted,
        }
    }
}
