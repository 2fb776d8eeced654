//! The queue between the ledger and the journal's thread, and the thread's news.
//!
//! The queue has a limit in bytes, because a disk that hangs takes no records. Beyond it, answers
//! and acceptances are lost, and such an answer ends with the process. Ends and drops are smaller
//! and have twice the limit. A lost one costs the next process only work: it computes a request
//! once more, or keeps an answer for its time.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::logic::journal::Record;

/// How long records wait for others if no request waits for them.
const LINGER: Duration = Duration::from_millis(20);

/// How long they wait while the journal is degraded. Each try writes the whole content then, so
/// requests share one.
const DEGRADED_LINGER: Duration = Duration::from_millis(100);

/// Pause before a degraded journal is tried again without new records.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Records on their way to the thread.
pub(super) struct Queue {
    pending: Mutex<Pending>,
    news: Condvar,
    /// The same for a task in simulated time.
    #[cfg(feature = "sim")]
    news_in_simulated_time: tokio::sync::Notify,
    max_bytes: usize,
}

#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    num_bytes: usize,
    /// The answers of which a record was lost, until they are dropped.
    lost: BTreeSet<Arc<str>>,
    /// Number of records so far, with those that were taken.
    num_recorded: u64,
    /// Whether a request waits for records that were not taken.
    is_urgent: bool,
    /// Whether some of the records must become durable together, or not at all.
    is_whole: bool,
    is_closed: bool,
}

/// Records that the thread writes at once.
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// Number of all records so far.
    pub(super) num_recorded: u64,
    /// Whether they must become durable together, or not at all.
    pub(super) is_whole: bool,
    /// Whether no more follow.
    pub(super) is_last: bool,
}

/// The thread's news.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// Number of bytes of the content.
    pub(super) num_bytes: usize,
    /// Number of records that are durable.
    pub(super) num_durable: u64,
    /// Number of records that the thread has tried to write.
    pub(super) num_tried: u64,
    /// The fault, while the journal is degraded.
    pub(super) fault: Option<Arc<str>>,
    /// Whether the fault is that the disk does not answer. Requests do not wait for it then.
    pub(super) hangs: bool,
    /// Whether the thread has ended.
    pub(super) has_ended: bool,
}

impl Queue {
    /// Returns a queue for so many bytes of answers and acceptances.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            pending: Mutex::default(),
            news: Condvar::new(),
            #[cfg(feature = "sim")]
            news_in_simulated_time: tokio::sync::Notify::new(),
            max_bytes,
        }
    }

    fn notify(&self) {
        self.news.notify_one();
        #[cfg(feature = "sim")]
        self.news_in_simulated_time.notify_one();
    }

    /// Appends a record, unless the queue is closed. Returns whether the record is lost, because
    /// the queue is full.
    pub(super) fn push(&self, record: Record) -> bool {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            return false;
        }
        let is_taken = pending.takes(&record, self.max_bytes);
        if is_taken {
            pending.append(record);
            self.notify();
        }
        !is_taken
    }

    /// Appends records that become durable together, whatever room there is. Returns `false` if the
    /// queue is closed.
    pub(super) fn push_whole(&self, records: Vec<Record>) -> bool {
        let mut pending = self.pending.lock();
        if !pending.is_closed {
            pending.is_whole = true;
            records.into_iter().for_each(|record| pending.append(record));
            self.notify();
        }
        !pending.is_closed
    }

    /// Takes no further records. If the operator wants the end of the process, that is the last
    /// record.
    pub(super) fn close(&self, is_wanted: bool) {
        let mut pending = self.pending.lock();
        if !pending.is_closed && is_wanted {
            pending.append(Record::Closed);
        }
        pending.is_closed = true;
        self.notify();
    }

    /// Returns whether a record of this answer was lost.
    pub(super) fn has_lost(&self, answer: &str) -> bool {
        self.pending.lock().lost.contains(answer)
    }

    #[cfg(test)]
    pub(super) fn num_bytes(&self) -> usize {
        self.pending.lock().num_bytes
    }

    /// Has the records so far written at once. Returns their number.
    pub(super) fn hurry(&self) -> u64 {
        let mut pending = self.pending.lock();
        pending.is_urgent = true;
        self.notify();
        pending.num_recorded
    }

    /// Waits for records, or for the end. For a degraded journal, it waits no longer than a pause.
    pub(super) fn take(&self, is_degraded: bool) -> Batch {
        let mut pending = self.pending.lock();
        // Requests that hurry records which were taken already do not put the next try off.
        let retry_at = Instant::now() + RETRY_PAUSE;
        while pending.records.is_empty() && !pending.is_closed {
            if !is_degraded {
                self.news.wait(&mut pending);
            } else if self.news.wait_until(&mut pending, retry_at).timed_out() {
                break;
            }
        }
        // Ends are written with the acceptances after them, because no request waits for ends.
        let until = Instant::now() + linger(is_degraded);
        while pending.may_linger(is_degraded) {
            if self.news.wait_until(&mut pending, until).timed_out() {
                break;
            }
        }
        pending.batch()
    }

    /// Does the same in simulated time.
    #[cfg(feature = "sim")]
    pub(super) async fn take_in_simulated_time(&self, is_degraded: bool) -> Batch {
        use tokio::time::{Instant, timeout_at};
        let retry_at = Instant::now() + RETRY_PAUSE;
        let is_idle = |pending: &Pending| pending.records.is_empty() && !pending.is_closed;
        while is_idle(&self.pending.lock()) {
            let news = self.news_in_simulated_time.notified();
            if !is_degraded {
                news.await;
            } else if timeout_at(retry_at, news).await.is_err() {
                break;
            }
        }
        let until = Instant::now() + linger(is_degraded);
        while self.pending.lock().may_linger(is_degraded) {
            let news = self.news_in_simulated_time.notified();
            if timeout_at(until, news).await.is_err() {
                break;
            }
        }
        self.pending.lock().batch()
    }
}

/// Returns how long records wait for others.
fn linger(is_degraded: bool) -> Duration {
    if is_degraded { DEGRADED_LINGER } else { LINGER }
}

impl Pending {
    /// Returns whether the records wait for others. Those that a request waits for are written at
    /// once, unless the journal is degraded.
    fn may_linger(&self, is_degraded: bool) -> bool {
        let is_urgent = self.is_urgent && !is_degraded;
        !is_urgent && !self.is_closed && !self.records.is_empty()
    }

    /// Takes all records.
    fn batch(&mut self) -> Batch {
        self.is_urgent = false;
        self.num_bytes = 0;
        Batch {
            records: std::mem::take(&mut self.records),
            num_recorded: self.num_recorded,
            is_whole: std::mem::take(&mut self.is_whole),
            is_last: self.is_closed,
        }
    }

    /// Returns whether there is room for a record. If not, its answer is lost.
    fn takes(&mut self, record: &Record, max_bytes: usize) -> bool {
        let num_bytes = self.num_bytes.saturating_add(record.bytes());
        let answer = match record {
            Record::Answer { name, .. } => Some(name),
            Record::Accepted(acceptance) => acceptance.answer_id(),
            Record::Dropped { name } => {
                self.lost.remove(name);
                None
            }
            _ => None,
        };
        let Some(answer) = answer else { return num_bytes <= max_bytes.saturating_mul(2) };
        let is_taken = num_bytes <= max_bytes && !self.lost.contains(answer);
        if !is_taken {
            self.lost.insert(Arc::clone(answer));
        }
        is_taken
    }

    fn append(&mut self, record: Record) {
        self.num_bytes = self.num_bytes.saturating_add(record.bytes());
        self.records.push(record);
        self.num_recorded += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that come one after the other would else have the whole content written for each.
    #[test]
    fn a_degraded_journal_waits_for_more_requests() {
        let queue = Queue::new(1 << 10);
        let taken_after = |is_degraded| {
            queue.push(Record::Dropped { name: "a".into() });
            queue.hurry();
            let began = Instant::now();
            assert_eq!(queue.take(is_degraded).records.len(), 1);
            began.elapsed()
        };
        assert!(taken_after(true) >= DEGRADED_LINGER);
        // The thread may lack a processor, but not each time.
        assert!((0..20).any(|_| taken_after(false) < DEGRADED_LINGER));
    }

    #[test]
    fn requests_without_records_do_not_put_the_next_try_off() {
        let queue = Arc::new(Queue::new(1 << 10));
        let taking = Arc::clone(&queue);
        let take = std::thread::spawn(move || taking.take(true).records.len());
        let limit = Instant::now() + Duration::from_secs(60);
        while !take.is_finished() {
            assert!(Instant::now() < limit, "each request puts it off");
            queue.hurry();
            std::thread::park_timeout(Duration::from_millis(20));
        }
        assert_eq!(take.join().unwrap(), 0);
    }
}
