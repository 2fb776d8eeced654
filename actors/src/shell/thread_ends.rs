//! The two ends of the OS thread of a device: jobs go to the thread, and reports to its actor.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flume::{Receiver, Sender};

use crate::{
    message::Letter,
    supervision::{
        address::Address,
        left_behind::{Held, Holder},
        supervisor::STOP_TIMEOUT,
    },
    system::context::Context,
};

/// The number of a job of one thread, from 1.
pub(crate) type JobNumber = u64;

/// The actor's end. Dropping it ends the thread after the jobs it has.
#[derive(Debug)]
pub(crate) struct JobQueue<J> {
    jobs: Sender<J>,
    num_submitted: AtomicU64,
    num_done: Arc<AtomicU64>,
    _tie: Holder,
}

/// The thread's end.
pub(crate) struct Reports<M> {
    context: Arc<Context>,
    actor: Address<M>,
    num_done: Arc<AtomicU64>,
    _held: Held,
}

/// Returns the ends of a thread that reports to `actor`, and the thread's inbox. At most `window`
/// jobs wait in it. If too many threads were left behind, this waits until one has ended, for
/// `longest_wait` at most. So each start of a thread waits, whichever actor needs it and why.
///
/// # Errors
/// When none has ended by then.
pub(crate) async fn thread_ends<J, M>(
    context: &Arc<Context>,
    actor: Address<M>,
    window: usize,
) -> std::io::Result<(JobQueue<J>, Receiver<J>, Reports<M>)> {
    let limit = longest_wait(context.config.hang_timeout);
    let (tie, held) = context.vault.left_behind.tie(limit).await?;
    let (jobs, inbox) = flume::bounded(window);
    let num_done = Arc::new(AtomicU64::new(0));
    let reports = Reports {
        context: Arc::clone(context),
        actor,
        num_done: Arc::clone(&num_done),
        _held: held,
    };
    Ok((JobQueue { jobs, num_submitted: AtomicU64::new(0), num_done, _tie: tie }, inbox, reports))
}

/// Returns how long the start of a thread may wait. An actor that waits that long in a handler is
/// not yet killed as one that hangs.
fn longest_wait(hang_timeout: Duration) -> Duration {
    STOP_TIMEOUT.min(hang_timeout / 2)
}

impl<J> JobQueue<J> {
    /// Queues a job and returns its number. Fails when the window is full or the thread has ended.
    pub(crate) fn submit(&self, job: J) -> Result<JobNumber, &'static str> {
        self.jobs.try_send(job).map_err(|error| match error {
            flume::TrySendError::Full(_) => "its window is full",
            flume::TrySendError::Disconnected(_) => "it has ended",
        })?;
        Ok(self.num_submitted.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns whether the thread takes no more jobs.
    pub(crate) fn has_ended(&self) -> bool {
        self.jobs.is_disconnected()
    }

    /// Returns whether the thread has reported a job. A report that did not arrive was lost.
    pub(crate) fn has_done(&self, job: JobNumber) -> bool {
        self.num_done.load(Ordering::Acquire) >= job
    }
}

impl<M: Letter> Reports<M> {
    /// Returns the number of the job that is reported next.
    pub(crate) fn job(&self) -> JobNumber {
        self.num_done.load(Ordering::Acquire) + 1
    }

    /// Reports a job. Returns whether the actor is still alive.
    pub(crate) fn report(&self, report: M) -> bool {
        let is_heard = self.send(report);
        self.num_done.fetch_add(1, Ordering::Release);
        is_heard
    }

    fn send(&self, report: M) -> bool {
        let chaos = &self.context.observers.chaos;
        let delivery = chaos.on_send(report.edge());
        if delivery.copies == 2
            && let Some(copy) = report.duplicate()
        {
            drop(self.actor.send(copy));
        }
        match delivery.delay {
            _ if delivery.copies == 0 => true,
            None => self.actor.send(report).is_ok(),
            Some(delay) => {
                let actor = self.actor.clone();
                chaos.later(delay, move || drop(actor.send(report)));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_gives_up_before_its_actor_counts_as_one_that_hangs() {
        for hang_timeout in [100, 1_250, 5_000, 60_000].map(Duration::from_millis) {
            let wait = longest_wait(hang_timeout);
            assert!(wait < hang_timeout && wait <= STOP_TIMEOUT, "{wait:?} of {hang_timeout:?}");
            assert!(!wait.is_zero());
        }
    }
}
