//! Times of named spans, recorded for each thread while a recording runs.
//!
//! A process has at most one recording at a time. It covers every engine in the process. While
//! there is none, a span costs one relaxed load and a branch.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// Most spans of one thread in a recording, 96 MiB of them. Later spans are only counted.
const SPANS_MAX: usize = 1 << 21;

static IS_ON: AtomicBool = AtomicBool::new(false);
static BUFFERS: Mutex<Vec<Arc<Buffer>>> = Mutex::new(Vec::new());

thread_local! {
    static BUFFER: Arc<Buffer> = Buffer::register();
}

/// One piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The name of the work.
    pub name: &'static str,
    /// The time when it began.
    pub begin: Instant,
    /// The time when it ended.
    pub end: Instant,
}

/// The work of one thread, in the order in which the spans ended. Of two spans of a thread, either
/// one contains the other or they do not overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSpans {
    /// The thread's name.
    pub thread: String,
    /// Its spans.
    pub spans: Vec<Span>,
    /// Number of spans that were too many to keep.
    pub num_lost: usize,
}

/// A recording in progress. Dropping it ends it.
#[derive(Debug)]
pub struct Recording {
    begin: Instant,
}

#[derive(Debug)]
struct Buffer {
    thread: String,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    spans: Vec<Span>,
    num_lost: usize,
}

/// Spans are whole even after a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffer {
    fn register() -> Arc<Self> {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let buffer = Arc::new(Self { thread, kept: Mutex::default() });
        lock(&BUFFERS).push(Arc::clone(&buffer));
        buffer
    }

    fn push(&self, span: Span) {
        let mut kept = lock(&self.kept);
        if kept.spans.len() < SPANS_MAX {
            kept.spans.push(span);
        } else {
            kept.num_lost += 1;
        }
    }
}

impl Recording {
    /// Begins a recording. Returns `None` while another one runs.
    #[must_use]
    pub fn start() -> Option<Self> {
        let begin = Instant::now();
        let is_free = IS_ON.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
        is_free.is_ok().then(|| {
            // A span of an earlier recording may have ended after it and left its entry behind.
            lock(&BUFFERS).iter().for_each(|buffer| *lock(&buffer.kept) = Kept::default());
            Self { begin }
        })
    }

    /// Returns the time when it began.
    #[must_use]
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// Ends it and returns the work of each thread. A span that has not ended yet is missing.
    #[must_use]
    pub fn finish(self) -> Vec<ThreadSpans> {
        let mut buffers = lock(&BUFFERS);
        let take = |buffer: &Arc<Buffer>| {
            let Kept { mut spans, num_lost } = std::mem::take(&mut *lock(&buffer.kept));
            spans.retain(|span| span.begin >= self.begin);
            ThreadSpans { thread: buffer.thread.clone(), spans, num_lost }
        };
        let threads = buffers.iter().map(take).filter(|thread| !thread.spans.is_empty()).collect();
        // The buffer of a thread that has ended has no other owner.
        buffers.retain(|buffer| Arc::strong_count(buffer) > 1);
        threads
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        IS_ON.store(false, Ordering::Release);
    }
}

/// Runs `work`, as a span of this name while there is a recording. A panic leaves no span.
#[inline]
pub fn timed<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    if IS_ON.load(Ordering::Relaxed) { record(name, work) } else { work() }
}

#[inline(never)]
fn record<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let begin = Instant::now();
    let result = work();
    let span = Span { name, begin, end: Instant::now() };
    BUFFER.with(|buffer| buffer.push(span));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording belongs to the whole process, so there is one test.
    #[test]
    fn spans_are_recorded_while_a_recording_runs() {
        assert_eq!(timed("before", || 1), 1);
        let recording = Recording::start().unwrap();
        assert!(Recording::start().is_none(), "one at a time");
        timed("outer", || timed("inner", || ()));
        let other = std::thread::Builder::new().name("other".to_owned());
        other.spawn(|| timed("elsewhere", || ())).unwrap().join().unwrap();
        let panicked = std::panic::catch_unwind(|| timed("broken", || panic!("on purpose")));
        assert!(panicked.is_err());
        let begin = recording.begin();
        let threads = recording.finish();
        timed("after", || ());
        let of = |thread: &str| {
            let found = threads.iter().find(|spans| spans.thread == thread).unwrap();
            assert_eq!(found.num_lost, 0);
            found.spans.clone()
        };
        let here = of(std::thread::current().name().unwrap());
        assert_eq!(here.iter().map(|span| span.name).collect::<Vec<_>>(), ["inner", "outer"]);
        let (inner, outer) = (here[0], here[1]);
        assert!(begin <= outer.begin && outer.begin <= inner.begin);
        assert!(inner.begin <= inner.end && inner.end <= outer.end);
        assert_eq!(of("other")[0].name, "elsewhere");

        let again = Recording::start().unwrap();
        drop(again);
        // Other tests compute at the same time, on threads of other names.
        let own = std::thread::current();
        let is_of_this_test =
            |spans: &ThreadSpans| [own.name().unwrap(), "other"].contains(&&*spans.thread);
        assert!(!Recording::start().unwrap().finish().iter().any(is_of_this_test));
    }
}
