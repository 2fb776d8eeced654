//! The engine process's end of the link: the way to the front, and the facts about the ledger that
//! the core needs. They are as of the last frames from the front.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::{
    link::{
        frames::{Observation, ToFront},
        outgoing::{NotSent, Outgoing},
    },
    logic::{
        recovery::in_flight::SideWork,
        request::ids::{Epoch, RequestId, Step},
        scheduler::{RecoveredRequest, output::SchedulerOutput},
    },
};

/// Longest wait until the front can read of a step.
const WRITE_LIMIT: Duration = Duration::from_millis(100);

/// The way to the front, and its ledger as the front told it.
#[derive(Debug)]
pub(crate) struct Uplink {
    link: Outgoing<ToFront>,
    ledger: Mutex<Told>,
    /// Number of works beside the steps so far.
    num_works: AtomicU64,
}

/// The facts about the ledger.
#[derive(Debug, Default)]
struct Told {
    epoch: Epoch,
    /// The number of tokens of each live request of the epoch when it began.
    lengths: BTreeMap<RequestId, usize>,
}

impl Uplink {
    /// Returns the end of a link over which no epoch has begun.
    pub(crate) fn new(link: Outgoing<ToFront>) -> Self {
        Self { link, ledger: Mutex::default(), num_works: AtomicU64::new(0) }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`NotSent`] if it is lost.
    pub(crate) fn send(&self, frame: &ToFront) -> Result<(), NotSent> {
        self.link.send(frame)
    }

    /// Sends a frame of at most `max_len` bytes.
    ///
    /// # Errors
    /// [`NotSent`] if it is lost.
    pub(crate) fn send_within(&self, max_len: usize, frame: &ToFront) -> Result<(), NotSent> {
        self.link.send_within(max_len, frame)
    }

    /// Tells the front that the device gets a step. A request that is new to this process may end
    /// the process at once. So a step with a new request waits until the front can read of it.
    pub(crate) async fn step_given(&self, output: &SchedulerOutput) {
        let (epoch, step) = (output.epoch, output.step);
        let requests = output.num_tokens_after().collect();
        let given = self.send(&ToFront::StepGiven { epoch, step, requests });
        if given.is_ok() && !output.scheduled_new.is_empty() {
            // A front that does not read is about to kill this process.
            let _ = timeout(WRITE_LIMIT, self.link.written()).await;
        }
    }

    /// Tells the front that the device has computed a step. A loss costs accuracy alone.
    pub(crate) fn step_done(&self, epoch: Epoch, step: Step) {
        let _ = self.send(&ToFront::StepDone { epoch, step });
    }

    /// Tells the front that work beside the steps begins. Waits until the front can read of it,
    /// because the work may end the process at once. Returns the number of the work.
    pub(crate) async fn work_given(&self, work: SideWork) -> u64 {
        let number = self.work_begins(work);
        // A front that does not read is about to kill this process.
        let _ = timeout(WRITE_LIMIT, self.link.written()).await;
        number
    }

    /// Does the same without waiting.
    pub(crate) fn work_begins(&self, work: SideWork) -> u64 {
        let number = self.num_works.fetch_add(1, Ordering::Relaxed);
        // A loss costs accuracy alone.
        let _ = self.send(&ToFront::WorkGiven(number, work));
        number
    }

    /// Tells the front that this work has ended.
    pub(crate) fn work_done(&self, number: u64) {
        let _ = self.send(&ToFront::WorkDone(number));
    }

    /// Writes bytes that are no frame.
    pub(crate) fn send_garbage(&self) {
        self.link.send_garbage();
    }

    /// Sends news for the metrics. Losses are not noticed: they cost accuracy alone.
    pub(crate) fn observe(&self, observation: Observation) {
        let _ = self.send(&ToFront::Observed(observation));
    }

    /// Returns whether the front may receive frames.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Records that the front began an epoch, before the scheduler learns of it. An actor that
    /// starts from now on has missed none of its messages. The tails of `newcomers` are forgotten.
    pub(crate) fn begin_epoch(
        &self,
        epoch: Epoch,
        live: &[RecoveredRequest],
        newcomers: &BTreeSet<RequestId>,
    ) {
        let may_have_tail = |request: &&RecoveredRequest| !newcomers.contains(&request.request.id);
        let length = |request: &RecoveredRequest| {
            let num_tokens = request.request.num_prompt_tokens() + request.output_token_ids.len();
            (request.request.id, num_tokens)
        };
        let mut told = self.ledger.lock();
        if epoch > told.epoch {
            *told =
                Told { epoch, lengths: live.iter().filter(may_have_tail).map(length).collect() };
        }
    }

    /// Records that requests have ended.
    pub(crate) fn forget(&self, requests: &[RequestId]) {
        let mut told = self.ledger.lock();
        for request in requests {
            told.lengths.remove(request);
        }
    }

    /// Returns the last epoch that the front began.
    pub(crate) fn epoch(&self) -> Epoch {
        self.ledger.lock().epoch
    }

    /// Returns the number of tokens that each live request had at the beginning of the epoch. Those
    /// that can have no tail here are left out.
    pub(crate) fn live_lengths(&self) -> BTreeMap<RequestId, usize> {
        self.ledger.lock().lengths.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logic::request::EngineRequest;

    #[test]
    fn a_newcomer_has_no_tail() {
        let uplink = Uplink::new(Outgoing::new().0);
        let live = [1, 2].map(|id| RecoveredRequest {
            request: Arc::new(EngineRequest::for_test(id, vec![5; 4])),
            output_token_ids: vec![6],
            num_prompt_logprobs: 0,
        });
        uplink.begin_epoch(Epoch(1), &live, &BTreeSet::from([RequestId(2)]));
        assert_eq!(uplink.live_lengths(), BTreeMap::from([(RequestId(1), 5)]));
        uplink.begin_epoch(Epoch(2), &live, &BTreeSet::new());
        assert_eq!(uplink.live_lengths().len(), 2, "it has gone on here");
    }
}
