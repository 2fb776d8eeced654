//! The thread that writes a journal. A panic in it counts as a fault of the disk: the thread goes
//! on with a new segment.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{JournalFault, Progress, Queue, Writer, metrics::JournalMetrics};
use crate::logic::journal::Record;

/// Pause before a degraded journal is tried again without new records.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How long records wait for others if no request waits for them.
const LINGER: Duration = Duration::from_millis(20);

/// The state of the thread.
pub(super) struct WriterThread {
    pub(super) writer: Writer,
    pub(super) queue: Arc<Queue>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) metrics: JournalMetrics,
}

impl WriterThread {
    pub(super) fn spawn(self) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("playhouse-journal".to_owned());
        thread.spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        self.metrics.show(&self.writer, false);
        loop {
            let is_degraded = self.progress.borrow().fault.is_some();
            let (records, num_recorded, is_closed) = self.queue.take(is_degraded);
            self.write(&records, num_recorded);
            if is_closed {
                self.progress.send_modify(|progress| progress.has_ended = true);
                return;
            }
        }
    }

    fn write(&mut self, records: &[Record], num_recorded: u64) {
        let began = Instant::now();
        let written = catch_unwind(AssertUnwindSafe(|| self.writer.write(records)));
        let written = written.unwrap_or_else(|panic| {
            self.writer.distrust();
            Err(JournalFault::Panicked(text(&*panic)))
        });
        self.metrics.wrote(records.len(), began.elapsed());
        let fault: Option<Arc<str>> = written.err().map(|fault| fault.to_string().into());
        self.metrics.show(&self.writer, fault.is_some());
        let before = self.progress.borrow().fault.clone();
        match &fault {
            Some(fault) if before.is_none() => tracing::error!(%fault, "the journal is degraded"),
            None if before.is_some() => tracing::info!("the journal is durable again"),
            _ => {}
        }
        self.progress.send_modify(|progress| {
            progress.num_tried = num_recorded;
            if fault.is_none() {
                progress.num_durable = num_recorded;
            }
            progress.fault = fault;
        });
    }
}

impl Queue {
    /// Waits for records, or for the end. Returns the records, the number of all records so far,
    /// and whether no more follow. For a degraded journal, it waits no longer than a pause.
    fn take(&self, is_degraded: bool) -> (Vec<Record>, u64, bool) {
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

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
