//! The thread that writes a journal. A panic in it counts as a fault of the disk: the thread goes
//! on with a new segment.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use tokio::sync::watch;

use super::{
    error::JournalFault,
    metrics::JournalMetrics,
    queue::{Batch, Progress, Queue},
    writer::Writer,
};
use crate::logic::journal::Record;

/// The state of the thread.
pub(super) struct WriterThread {
    pub(super) writer: Writer,
    pub(super) queue: Arc<Queue>,
    pub(super) progress: Arc<watch::Sender<Progress>>,
    pub(super) metrics: Arc<JournalMetrics>,
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
            let batch = self.queue.take(is_degraded);
            if !self.take(&batch) {
                return;
            }
        }
    }

    /// Does the same as a task, in simulated time. `write_time` returns the time of the next write.
    #[cfg(feature = "sim")]
    pub(super) async fn run_in_simulated_time(
        mut self,
        mut write_time: impl FnMut() -> std::time::Duration + Send,
    ) {
        loop {
            let is_degraded = self.progress.borrow().fault.is_some();
            let batch = self.queue.take_in_simulated_time(is_degraded).await;
            tokio::time::sleep(write_time()).await;
            if !self.take(&batch) {
                return;
            }
        }
    }

    /// Writes a batch. Returns whether more may follow.
    fn take(&mut self, batch: &Batch) -> bool {
        if batch.is_whole {
            // A new segment is there whole, or not at all.
            self.writer.distrust();
        }
        self.write(&batch.records, batch.num_recorded);
        if batch.is_last {
            self.metrics.ended();
            self.progress.send_modify(|progress| progress.has_ended = true);
        }
        !batch.is_last
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
        let before = self.progress.borrow().fault.clone();
        match &fault {
            Some(fault) if before.is_none() => tracing::error!(%fault, "the journal is degraded"),
            None if before.is_some() => tracing::info!("the journal is durable again"),
            _ => {}
        }
        self.progress.send_modify(|progress| {
            // A request that takes the disk to hang shows that at the same place.
            self.metrics.show(&self.writer, fault.is_some());
            progress.num_tried = num_recorded;
            progress.num_bytes = self.writer.live().num_bytes();
            if fault.is_none() {
                progress.num_durable = num_recorded;
            }
            progress.fault = fault;
            progress.hangs = false;
        });
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
