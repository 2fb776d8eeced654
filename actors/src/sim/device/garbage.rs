//! Garbage, and the reports of it. As on a real device, a request whose content is not finite is
//! reported when a token is drawn for it. The parts of its prompt before that report nothing.

use std::collections::BTreeMap;

use crate::{logic::request::ids::Epoch, sim::memory::Life};

/// The lives that were reported as not finite.
#[derive(Debug, Default)]
pub(super) struct Reports {
    num_lives: Life,
    /// Reports that the scheduler may not know when it plans the next step.
    recent: Vec<(Epoch, u64, Life)>,
    /// The execution from which on no request may begin with a life's garbage.
    known_at: BTreeMap<Life, u64>,
}

impl Reports {
    /// Returns the life of a request that begins.
    pub(super) fn begin_life(&mut self) -> Life {
        self.num_lives += 1;
        self.num_lives
    }

    /// Records that execution number `execution` reports a life as not finite.
    pub(super) fn report(&mut self, epoch: Epoch, execution: u64, life: Life) {
        self.recent.push((epoch, execution, life));
    }

    /// Begins an execution. The scheduler has planned it after the report of an earlier execution,
    /// unless that was the one before and steps are planned ahead. A report of an epoch that ended
    /// before may have been lost with it.
    pub(super) fn begin_execution(&mut self, epoch: Epoch, execution: u64, is_async: bool) {
        let known_at = &mut self.known_at;
        self.recent.retain(|&(reported_in, reported_at, life)| {
            let is_known = reported_at + u64::from(is_async) < execution;
            if is_known && reported_in == epoch {
                known_at.entry(life).or_insert(execution);
            }
            !is_known
        });
    }

    /// Returns whether a request that began with execution number `began` may read the garbage of
    /// `life`.
    pub(super) fn may_read(&self, life: Life, began: u64) -> bool {
        self.known_at.get(&life).is_none_or(|&known_at| began < known_at)
    }
}
