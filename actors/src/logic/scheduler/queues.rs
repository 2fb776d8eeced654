//! The lists that requests stand in.

use std::collections::BTreeSet;

use super::{SchedulerConfig, WaitingReason, aside::Aside, request_table::Slot};
use crate::logic::{
    request::ids::{Micros, RequestId, Step},
    scheduler::request_queue::RequestQueue,
};

/// The requests that run, wait in the queue, or wait aside.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    /// Running requests, in order of admission. Ended requests stay in the list until the next
    /// compaction.
    pub(super) running: Vec<Slot>,
    pub(super) running_is_dirty: bool,
    pub(super) waiting: RequestQueue<Slot>,
    pub(super) aside: Aside,
    pub(super) waiting_reason: WaitingReason,
    /// Deadlines of requests that have not begun.
    pub(super) deadlines: BTreeSet<(Micros, RequestId)>,
    /// Whether the epoch began with requests whose outputs had begun.
    pub(super) resumes: bool,
    /// The first step of the epoch with an admission.
    pub(super) first_admission: Option<Step>,
    pub(super) last_admission: Option<Step>,
}

impl Queues {
    /// Returns empty queues.
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        Self {
            running: Vec::new(),
            running_is_dirty: false,
            waiting: RequestQueue::new(config.policy, config.priority_age_bound),
            aside: Aside::default(),
            waiting_reason: WaitingReason::default(),
            deadlines: BTreeSet::new(),
            resumes: false,
            first_admission: None,
            last_admission: None,
        }
    }
}
