//! The record of one run: a digest of all events, the first violation, and on demand the events
//! themselves.

use std::{
    cell::RefCell,
    panic,
    sync::{Arc, Once},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::rng::mix;

/// The events and the first violation of one run.
#[derive(Debug)]
pub struct Record {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Option<Instant>,
    /// Time before the current life of the system.
    base: u64,
    /// The time while no life runs.
    stopped: Option<u64>,
    num_events: u64,
    digest: u64,
    violation: Option<String>,
    troubled_until: u64,
    /// Present if and only if events are kept.
    log: Option<Vec<String>>,
}

impl Record {
    /// Returns an empty record. With `verbose`, events are kept.
    #[must_use]
    pub fn new(verbose: bool) -> Arc<Self> {
        let log = verbose.then(Vec::new);
        let inner = Inner {
            started: None,
            base: 0,
            stopped: None,
            num_events: 0,
            digest: 0,
            violation: None,
            troubled_until: 0,
            log,
        };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Begins a life of the system, in a runtime of its own. Time goes on.
    pub fn begin_life(&self) {
        let mut inner = self.inner.lock();
        inner.started = None;
        inner.base = inner.stopped.take().unwrap_or(inner.base);
    }

    /// Ends a life of the system. Time stands still until the next.
    pub fn end_life(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = Some(inner.micros());
    }

    /// Records an event, described by `what` and numbers.
    pub fn note(&self, what: &'static str, numbers: &[u64]) {
        let mut inner = self.inner.lock();
        let at = inner.digest(what, numbers);
        let count = inner.num_events;
        if let Some(log) = &mut inner.log {
            log.push(format!("{count:>6} {:>10.3} ms  {what} {numbers:?}", at as f64 / 1e3));
        }
    }

    /// Records an event that is not kept in the log.
    pub fn note_silently(&self, what: &'static str, numbers: &[u64]) {
        self.inner.lock().digest(what, numbers);
    }

    /// Adds a line to the log. The digest does not cover the line.
    pub fn explain(&self, line: impl FnOnce() -> String) {
        let mut inner = self.inner.lock();
        if inner.log.is_some() {
            let at = inner.micros();
            let line = format!("{:>6} {:>10.3} ms  {}", "", at as f64 / 1e3, line());
            inner.log.get_or_insert_default().push(line);
        }
    }

    /// Records a violation. Only the first one counts, because later ones may follow from it.
    pub fn violate(&self, what: impl FnOnce() -> String) {
        let mut inner = self.inner.lock();
        if inner.violation.is_none() {
            let what = what();
            let at = inner.micros();
            if let Some(log) = &mut inner.log {
                log.push(format!("{:>6} {:>10.3} ms  VIOLATION: {what}", "", at as f64 / 1e3));
            }
            inner.violation = Some(what);
        }
    }

    /// Records that a planned fault happens now.
    pub fn trouble(&self) {
        self.trouble_until(Duration::ZERO);
    }

    /// Records that a planned fault lasts for `time`.
    pub fn trouble_until(&self, time: Duration) {
        let mut inner = self.inner.lock();
        let end = inner.micros() + time.as_micros() as u64;
        inner.troubled_until = inner.troubled_until.max(end);
    }

    /// Returns the time at which the last planned fault ends, in microseconds.
    #[must_use]
    pub fn troubled_until(&self) -> u64 {
        self.inner.lock().troubled_until
    }

    /// Returns the simulated time since the first event, in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.inner.lock().micros()
    }

    /// Returns the first violation, if there is one.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.inner.lock().violation.clone()
    }

    /// Returns the digest of all events.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.inner.lock().digest
    }

    /// Returns the number of events.
    #[must_use]
    pub fn num_events(&self) -> u64 {
        self.inner.lock().num_events
    }

    /// Returns the events, if they were kept.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        self.inner.lock().log.take().unwrap_or_default()
    }
}

impl Inner {
    /// Adds an event to the digest and returns its time.
    fn digest(&mut self, what: &'static str, numbers: &[u64]) -> u64 {
        let at = self.micros();
        self.num_events += 1;
        let name = what.as_bytes().chunks(8).map(word);
        let words = name.chain(numbers.iter().copied());
        self.digest = words.fold(mix(self.digest ^ at), |digest, word| mix(digest ^ word));
        at
    }

    /// Returns the simulated time since the first event, in microseconds.
    fn micros(&mut self) -> u64 {
        if let Some(stopped) = self.stopped {
            return stopped;
        }
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        self.base + (now - started).as_micros() as u64
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Record>>> = const { RefCell::new(None) };
}

/// Calls `run` and records a panic on this thread as a violation. A planned panic does not call the
/// panic hook, so it is no violation.
pub(super) fn with_panics_recorded<T>(record: &Arc<Record>, run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            match CURRENT.with_borrow(Clone::clone) {
                Some(record) => record.violate(|| info.to_string()),
                None => before(info),
            };
        }));
    });
    CURRENT.set(Some(Arc::clone(record)));
    let result = run();
    CURRENT.set(None);
    result
}
