//! The queue between the ledger and the journal's thread, and the thread's news.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::logic::journal::Record;

/// How long records wait for others if no request waits for them.
const LINGER: Duration = Duration::from_millis(20);

/// Pause before a degraded journal is tried again without new records.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Records on their way to the thread.
#[derive(Default)]
pub(super) struct Queue {
    pending: Mutex<Pending>,
    news: Condvar,
}

#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    /// Number of records so far, with those that were taken.
    num_recorded: u64,
    /// Whether a request waits for records that were not taken.
    is_urgent: bool,
    is_closed: bool,
}

/// The thread's news.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// Number of records that are durable.
    pub(super) num_durable: u64,
    /// Number of records that the thread has tried to write.
    pub(super) num_tried: u64,
    /// The fault, while the journal is degraded.
    pub(super) fault: Option<Arc<str>>,
    /// Whether the thread has ended.
    pub(super) has_ended: bool,
}

impl Queue {
    /// Appends a record, unless the queue is closed.
    pub(super) fn push(&self, record: Record) {
        let mut pending = self.pending.lock();
        if !pending.is_closed {
            pending.records.push(record);
            pending.num_recorded += 1;
            self.news.notify_one();
        }
    }

    /// Takes no further records.
    pub(super) fn close(&self) {
        self.pending.lock().is_closed = true;
        self.news.notify_one();
    }

    /// Has the records so far written at once. Returns their number.
    pub(super) fn hurry(&self) -> u64 {
        let mut pending = self.pending.lock();
        pending.is_urgent = true;
        self.news.notify_one();
        pending.num_recorded
    }

    /// Waits for records, or for the end. Returns the records, the number of all records so far,
    /// and whether no more follow. For a degraded journal, it waits no longer than a pause.
    pub(super) fn take(&self, is_degraded: bool) -> (Vec<Record>, u64, bool) {
        let mut pending = self.pending.lock();
        while pending.records.is_empty() && !pending.is_closed {
            if !is_degraded {
                self.news.wait(&mut pending);
            } else if self.news.wait_for(&mut pending, RETRY_PAUSE).timed_out() {
                break;
            }
        }
        // Ends are written with the acceptances after them, because no request waits for ends.
        let until = Instant::now() + LINGER;
        while !pending.is_urgent && !pending.is_closed && !pending.records.is_empty() {
            if self.news.wait_until(&mut pending, until).timed_out() {
                break;
            }
        }
        pending.is_urgent = false;
        (std::mem::take(&mut pending.records), pending.num_recorded, pending.is_closed)
    }
}
