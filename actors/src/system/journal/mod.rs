//! The journal of a system: a queue of records, and the thread that makes them durable. Requests
//! of kept answers survive the process: see [`crate::logic::journal`].
//!
//! The ledger puts records into the queue and never waits. The thread writes all records of the
//! queue at once and syncs once, so many acceptances share a sync. A client's request waits for the
//! thread's news that its records are durable ([`Journal::durable`]).
//!
//! After a fault of the disk, the thread begins a new segment with the whole content until that
//! succeeds. Meanwhile the journal is *degraded*, and its setting says whether requests are refused
//! or go on without it. The first request that waits too long for a disk that hangs makes the
//! journal degraded too, until the disk answers. Nothing waits for it meanwhile.
//!
//! Each engine has a journal of its own. A journal takes over the content of others whose processes
//! have ended ([`Left`]): at its start, and later when they end.

mod error;
#[cfg(any(test, feature = "sim"))]
pub mod fault_disk;
mod left;
mod metrics;
mod queue;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use self::metrics::JournalMetrics;
pub use self::{
    error::{JournalError, JournalFault},
    left::{Left, Takeover},
    writer::{Opened, Writer},
};
use self::{
    queue::{Progress, Queue},
    thread::WriterThread,
};
use crate::{
    error::RequestError,
    logic::{
        journal::{Answer, Fingerprint, Record},
        ledger::{GroundState, LedgerEvent},
        request::ids::RequestId,
    },
    ports::JournalDisk,
};

/// How long a request waits for the disk. A disk that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Least and greatest limit on the bytes of records that wait for the disk.
const QUEUE_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=64 << 20;

/// The settings of a journal.
#[derive(Debug, Clone)]
pub struct JournalConfig {
    /// The facts about this process.
    pub fingerprint: Fingerprint,
    /// Maximum number of bytes of the content.
    pub max_bytes: usize,
    /// Whether requests are refused while the journal is degraded.
    pub refuses_on_fault: bool,
    /// Value of the metrics' `model_name` label.
    pub model_name: String,
    /// Value of the metrics' `engine` label.
    pub engine: String,
}

/// The journal of one system.
pub struct Journal {
    fingerprint: Fingerprint,
    max_bytes: usize,
    queue: Arc<Queue>,
    progress: Arc<watch::Sender<Progress>>,
    metrics: Arc<JournalMetrics>,
    refuses_on_fault: bool,
    /// The time that requests' times count from, in microseconds since 1970.
    zero: u64,
    next_request: RequestId,
    restored: Mutex<Vec<Answer>>,
    /// Whether the journal goes on when its engine has ended.
    outlives_engine: AtomicBool,
    /// Whether the engine has ended, so that the ends of its requests are not recorded.
    has_no_engine: AtomicBool,
}

impl Journal {
    /// Begins a journal on `disk`, which is empty, with the content of those in `left`, of which
    /// the newest is the first. Starts its thread.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be opened, for the operator.
    pub fn start(
        disk: Box<dyn JournalDisk>,
        left: Vec<Left>,
        config: JournalConfig,
    ) -> Result<Self, JournalError> {
        let (journal, thread) = Self::open(disk, left, config, unix_micros())?;
        thread.spawn()?;
        Ok(journal)
    }

    /// Begins a journal that is written by a task of the current runtime, in simulated time.
    /// Times count from `zero`, and `write_time` returns the time of the next write.
    ///
    /// # Errors
    /// As [`Self::start`].
    #[cfg(feature = "sim")]
    pub fn start_in_simulated_time(
        disk: Box<dyn JournalDisk>,
        left: Vec<Left>,
        config: JournalConfig,
        zero: u64,
        write_time: impl FnMut() -> Duration + Send + 'static,
    ) -> Result<Self, JournalError> {
        let (journal, thread) = Self::open(disk, left, config, zero)?;
        drop(tokio::spawn(thread.run_in_simulated_time(write_time)));
        Ok(journal)
    }

    fn open(
        disk: Box<dyn JournalDisk>,
        left: Vec<Left>,
        config: JournalConfig,
        zero: u64,
    ) -> Result<(Self, WriterThread), JournalError> {
        let JournalConfig { fingerprint, max_bytes, refuses_on_fault, model_name, engine } = config;
        let (writer, opened) = Writer::open(disk, left, fingerprint.clone(), max_bytes, zero)?;
        opened.told.iter().for_each(|event| tracing::warn!("{event}"));
        tracing::info!(answers = opened.answers.len(), "the journal is open");
        let queue = Arc::new(Queue::new(max_bytes.clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end())));
        let num_bytes = writer.live().num_bytes();
        let progress = Progress { num_bytes, ..Progress::default() };
        let progress = Arc::new(watch::Sender::new(progress));
        let metrics = Arc::new(JournalMetrics::new(&model_name, &engine));
        metrics.have_other_models(opened.num_of_other_models);
        let (next_request, restored) = (opened.next_request, Mutex::new(opened.answers));
        let shared = (Arc::clone(&queue), Arc::clone(&progress), Arc::clone(&metrics));
        let (thread_queue, thread_progress, thread_metrics) = shared;
        let thread = WriterThread {
            writer,
            queue: thread_queue,
            progress: thread_progress,
            metrics: thread_metrics,
        };
        let journal = Self {
            fingerprint,
            max_bytes,
            queue,
            progress,
            metrics,
            refuses_on_fault,
            zero,
            next_request,
            restored,
            outlives_engine: AtomicBool::new(false),
            has_no_engine: AtomicBool::new(false),
        };
        Ok((journal, thread))
    }

    /// Reads journals whose processes have ended since the start. Blocks while the disk does.
    ///
    /// # Errors
    /// [`JournalError`] if a disk fails, or a journal has another version.
    pub fn read_left(&self, left: Vec<Left>) -> Result<Takeover, JournalError> {
        let takeover = Takeover::read(left, &self.fingerprint)?;
        takeover.told.iter().for_each(|event| tracing::warn!("{event}"));
        self.metrics.have_other_models(takeover.num_of_other_models);
        Ok(takeover)
    }

    /// Returns whether the content of `takeover` fits this journal's limit.
    #[must_use]
    pub fn has_room_for(&self, takeover: &Takeover) -> bool {
        let num_bytes = self.progress.borrow().num_bytes;
        num_bytes.saturating_add(takeover.num_bytes()) <= self.max_bytes
    }

    /// Takes the content of `takeover` into this journal. `reserve` reserves so many ids of
    /// requests in the engine, and returns the first. Returns the answers. `None` if the journal is
    /// closed.
    pub fn take_over(
        &self,
        takeover: &mut Takeover,
        reserve: impl FnOnce(u64) -> RequestId,
    ) -> Option<Vec<Answer>> {
        let live = std::mem::take(&mut takeover.live);
        let first = reserve(live.next_request().0);
        let live = live.moved(first.0);
        let records = live.snapshot(&self.fingerprint).collect();
        self.queue.push_whole(records).then(|| live.answers(self.zero))
    }

    /// Completes once all records so far are durable, however long that takes. Returns `false` if
    /// the journal ends before.
    pub async fn written(&self) -> bool {
        let target = self.queue.hurry();
        let mut progress = self.progress.subscribe();
        let written = progress
            .wait_for(|progress| progress.num_durable >= target || progress.has_ended)
            .await;
        written.is_ok_and(|progress| progress.num_durable >= target)
    }

    /// Lets the journal go on after its engine, for the answers that clients may still ask for.
    pub fn outlive_engine(&self) {
        self.outlives_engine.store(true, Ordering::Release);
    }

    /// Records no end from here on, because the engine ends: its open requests continue in the next
    /// process. Closes the journal, unless it goes on after its engine. `is_wanted` is that of
    /// [`Self::close`].
    pub(crate) async fn end_engine(&self, is_wanted: bool) {
        if !self.outlives_engine.load(Ordering::Acquire) {
            return self.close(is_wanted).await;
        }
        self.has_no_engine.store(true, Ordering::Release);
        if is_wanted {
            self.record(Record::Closed);
        }
    }

    /// Appends a record. A closed journal drops it, and so does one whose disk takes none for long.
    pub fn record(&self, record: Record) {
        if self.queue.push(record) {
            self.metrics.lost();
        }
    }

    /// Records an event of the ledger, if the journal needs it.
    pub(crate) fn on_ledger_event(&self, event: &LedgerEvent, state: &GroundState) {
        if self.has_no_engine.load(Ordering::Acquire) {
            return;
        }
        let is_kept =
            |request| state.get(request).is_some_and(|entry| entry.request().answer_id.is_some());
        if let Some(record) = Record::of(event, self.zero, is_kept) {
            self.record(record);
        }
    }

    /// Completes once all records so far are durable.
    ///
    /// # Errors
    /// [`RequestError::Journal`] if the journal is degraded and refuses requests then.
    pub async fn durable(&self) -> Result<(), RequestError> {
        let target = self.queue.hurry();
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|progress| {
            let is_tried = progress.fault.is_some() && progress.num_tried >= target;
            progress.num_durable >= target || is_tried || progress.hangs || progress.has_ended
        });
        let fault: Arc<str> = match tokio::time::timeout(PATIENCE, settled).await {
            Ok(Ok(progress)) if progress.num_durable >= target => return Ok(()),
            Ok(Ok(progress)) => progress.fault.clone().unwrap_or_else(|| "it is closed".into()),
            Ok(Err(_)) => "its thread has ended".into(),
            Err(_) => self.give_up(target),
        };
        self.answer(&fault)
    }

    /// Does the same for the records of one answer, of which none may be lost.
    ///
    /// # Errors
    /// As [`Self::durable`], and if a record of the answer is lost.
    pub async fn durable_answer(&self, name: &str) -> Result<(), RequestError> {
        match self.queue.has_lost(name) {
            true => self.answer("too many records wait for the disk"),
            false => self.durable().await,
        }
    }

    /// Notes that the disk does not answer, unless it has written the records so far by now.
    fn give_up(&self, target: u64) -> Arc<str> {
        let fault: Arc<str> =
            format!("the disk did not answer within {} s", PATIENCE.as_secs()).into();
        let hangs = self.progress.send_if_modified(|progress| {
            let hangs = progress.num_tried < target && !progress.hangs && !progress.has_ended;
            if hangs {
                self.metrics.hangs();
                progress.hangs = true;
                progress.fault.get_or_insert_with(|| Arc::clone(&fault));
            }
            hangs
        });
        if hangs {
            tracing::error!(%fault, "the journal is degraded");
        }
        fault
    }

    /// Checks that a new request would not be refused because of the journal.
    ///
    /// # Errors
    /// [`RequestError::Journal`] if the journal is degraded and refuses requests then.
    pub fn check(&self) -> Result<(), RequestError> {
        self.fault().map_or(Ok(()), |fault| self.answer(&fault))
    }

    fn answer(&self, fault: &str) -> Result<(), RequestError> {
        match self.refuses_on_fault {
            true => Err(RequestError::Journal(fault.to_owned())),
            false => Ok(()),
        }
    }

    /// Returns the fault of a degraded journal.
    #[must_use]
    pub fn fault(&self) -> Option<Arc<str>> {
        self.progress.borrow().fault.clone()
    }

    /// Returns whether records cannot be made durable now.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.progress.borrow().fault.is_some()
    }

    /// Returns whether new requests are refused, because the journal is degraded.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.refuses_on_fault && self.is_degraded()
    }

    /// Returns the answers of earlier processes. A second call returns none.
    #[must_use]
    pub fn take_restored(&self) -> Vec<Answer> {
        std::mem::take(&mut self.restored.lock())
    }

    /// Returns the lowest id that no request has had.
    #[must_use]
    pub fn next_request(&self) -> RequestId {
        self.next_request
    }

    /// Takes no further records, and completes when those so far were written. Requests that are
    /// open now are open in the next process. `is_wanted` says that the operator ends the process,
    /// so that its requests are not the cause.
    pub async fn close(&self, is_wanted: bool) {
        self.queue.close(is_wanted);
        let mut progress = self.progress.subscribe();
        let ended = progress.wait_for(|progress| progress.has_ended || progress.hangs);
        // A thread that died has no more to write, and a disk that hangs cannot be waited for.
        let _ = tokio::time::timeout(PATIENCE, ended).await;
    }
}

/// Ends the thread after the records so far.
impl Drop for Journal {
    fn drop(&mut self) {
        self.queue.close(false);
    }
}

fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("fault", &self.fault()).finish_non_exhaustive()
    }
}
