//! The recorder: it writes a [recording](crate::logic::recording) of the engine in this process.
//!
//! The scheduler and the KV cache manager note entries, and a thread writes them. A queue that is
//! full, a file that has its maximum size, or a fault of the disk ends the recording. The engine
//! never waits for it.

mod config;
mod state;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use flume::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;

pub use self::config::{OpenRecording, RecorderConfig, RecordingFile};
use self::{state::State, thread::RecorderThread};
use crate::logic::{
    kv_cache::allocation::AllocationPlan,
    recording::{ENTRY_CONTENT_BYTES_MAX, Entry, Executed, RecordedContent, StopCause},
    request::{EngineRequest, ids::Epoch},
};

/// Largest number of entries that wait for the thread. A step has about three.
const QUEUE_MAX: usize = 16_384;

/// Most bytes of images and sounds that wait for the thread.
const QUEUE_CONTENT_BYTES_MAX: usize = 1 << 30;

/// Longest wait for the last entries at the end of the process.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Notes the inputs of one engine's scheduler and KV cache manager.
#[derive(Debug)]
pub struct Recorder {
    queue: Sender<Entry>,
    state: Arc<State>,
    /// The content of images and sounds that the recording has.
    content: Mutex<RecordedContent>,
    /// The last executed plans, and their epoch.
    executed: Mutex<(Epoch, Executed)>,
    /// Number of schedulers so far.
    num_schedulers: AtomicU64,
    has_ended: Receiver<()>,
    is_reported: AtomicBool,
}

impl Recorder {
    /// Starts the thread of a recording.
    ///
    /// # Errors
    /// The system's error if it gives no thread.
    pub fn start(config: RecorderConfig) -> io::Result<Self> {
        Self::with_queue(config, QUEUE_MAX)
    }

    fn with_queue(config: RecorderConfig, max_entries: usize) -> io::Result<Self> {
        let (queue, entries) = flume::bounded(max_entries);
        let (ended, has_ended) = flume::bounded(1);
        let state = Arc::new(State::default());
        let content = Mutex::new(RecordedContent::new(config.has_media));
        RecorderThread::new(config, entries, Arc::clone(&state), ended).spawn()?;
        Ok(Self {
            queue,
            state,
            content,
            executed: Mutex::default(),
            num_schedulers: AtomicU64::new(0),
            has_ended,
            is_reported: AtomicBool::new(false),
        })
    }

    /// Notes an entry, if the recording goes on. It never waits.
    pub(crate) fn note(&self, entry: impl FnOnce() -> Entry) {
        if self.state.is_over() {
            return;
        }
        let entry = entry();
        let num_bytes = entry.content_bytes();
        let waiting = self.state.content_bytes.fetch_add(num_bytes, Ordering::AcqRel);
        let is_full = num_bytes > 0 && waiting + num_bytes > QUEUE_CONTENT_BYTES_MAX;
        if is_full || matches!(self.queue.try_send(entry), Err(TrySendError::Full(_))) {
            self.state.was_full.store(true, Ordering::Release);
            self.state.truncate();
            tracing::warn!("{}; the recording stops, the engine goes on", StopCause::QueueFull);
        }
    }

    /// Returns requests as the recording gets them, in an entry that is noted next.
    pub(crate) fn recorded<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a Arc<EngineRequest>>,
    ) -> Vec<Arc<EngineRequest>> {
        let (mut content, mut room) = (self.content.lock(), ENTRY_CONTENT_BYTES_MAX);
        requests.into_iter().map(|request| content.recorded(request, &mut room)).collect()
    }

    /// Returns the number of a new scheduler, from 1. Only the latest one is recorded: a scheduler
    /// that was abandoned may go on for a moment.
    pub(crate) fn next_scheduler(&self) -> u64 {
        self.num_schedulers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns whether no later scheduler has started.
    pub(crate) fn is_latest(&self, scheduler: u64) -> bool {
        self.num_schedulers.load(Ordering::Acquire) == scheduler
    }

    /// Notes that the KV cache manager has executed a plan. Plans of abandoned managers, which are
    /// of past epochs, do not count.
    pub(crate) fn executed(&self, plan: &AllocationPlan) {
        let mut executed = self.executed.lock();
        if plan.epoch >= executed.0 {
            let rounds = plan.round.saturating_add(1);
            *executed = (plan.epoch, Executed { step: plan.step, rounds });
        }
    }

    /// Returns the last executed plans.
    pub(crate) fn last_executed(&self) -> Executed {
        self.executed.lock().1
    }

    /// Returns whether the recording has ended before the engine since the last call.
    pub(crate) fn take_truncation(&self) -> bool {
        self.state.is_truncated.load(Ordering::Acquire)
            && !self.is_reported.swap(true, Ordering::AcqRel)
    }

    /// Ends the recording, because the engine ends. Waits a moment until it is written.
    pub(crate) async fn close(&self) {
        self.note(|| Entry::Stopped(StopCause::Closed));
        self.state.is_over.store(true, Ordering::Release);
        // A disk that hangs keeps nothing from ending.
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.has_ended.recv_async()).await;
    }
}
