//! What happened in one run: a digest of all events, the first thing that was wrong, and, if
//! somebody wants to read it, the events themselves.

use std::{
    cell::RefCell,
    panic,
    sync::{Arc, Once},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::rng::mix;

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Option<Instant>,
    num_events: u64,
    digest: u64,
    violation: Option<String>,
    troubled_until: u64,
    /// There iff events are to be read.
    log: Option<Vec<String>>,
}

impl Record {
    /// An empty record; with `verbose`, events are kept.
    #[must_use]
    pub fn new(verbose: bool) -> Arc<Self> {
        let log = verbose.then(Vec::new);
        let inner = Inner {
            started: None,
            num_events: 0,
            digest: 0,
            violation: None,
            troubled_until: 0,
            log,
        };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Something happened, described by `what` and numbers.
    pub fn note(&self, what: &'static str, numbers: &[u64]) {
        let mut inner = self.inner.lock();
        let at = inner.digest(what, numbers);
        let count = inner.num_events;
        if let Some(log) = &mut inner.log {
            log.push(format!("{count:>6} {:>10.3} ms  {what} {numbers:?}", at as f64 / 1e3));
        }
    }

    /// Something happened that nobody wants to read of.
    pub fn note_silently(&self, what: &'static str, numbers: &[u64]) {
        self.inner.lock().digest(what, numbers);
    }

    /// A line for the reader, which the digest does not cover.
    pub fn explain(&self, line: impl FnOnce() -> String) {
        let mut inner = self.inner.lock();
        if inner.log.is_some() {
            let at = inner.micros();
            let line = format!("{:>6} {:>10.3} ms  {}", "", at as f64 / 1e3, line());
            inner.log.get_or_insert_default().push(line);
        }
    }

    /// Something is wrong. The first time counts: what follows may follow from it.
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

    /// Something goes wrong now, on purpose.
    pub fn trouble(&self) {
        self.trouble_until(Duration::ZERO);
    }

    /// Something goes wrong, on purpose, for so long.
    pub fn trouble_until(&self, time: Duration) {
        let mut inner = self.inner.lock();
        let end = inner.micros() + time.as_micros() as u64;
        inner.troubled_until = inner.troubled_until.max(end);
    }

    /// Until when something went wrong on purpose.
    #[must_use]
    pub fn troubled_until(&self) -> u64 {
        self.inner.lock().troubled_until
    }

    /// Simulated time since the first event, in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.inner.lock().micros()
    }

    /// What is wrong, if anything is.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.inner.lock().violation.clone()
    }

    /// Names the sequence of all events.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.inner.lock().digest
    }

    /// How many there were.
    #[must_use]
    pub fn num_events(&self) -> u64 {
        self.inner.lock().num_events
    }

    /// The events, if they were kept.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        self.inner.lock().log.take().unwrap_or_default()
    }
}

impl Inner {
    /// Returns the time.
    fn digest(&mut self, what: &'static str, numbers: &[u64]) -> u64 {
        let at = self.micros();
        self.num_events += 1;
        let name = what.as_bytes().chunks(8).map(word);
        let words = name.chain(numbers.iter().copied());
        self.digest = words.fold(mix(self.digest ^ at), |digest, word| mix(digest ^ word));
        at
    }

    /// Simulated time since the first event.
    fn micros(&mut self) -> u64 {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        (now - started).as_micros() as u64
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Record>>> = const { RefCell::new(None) };
}

/// Within `run`, a panic on this thread is a violation. Planned ones unwind without a call of the
/// panic hook, so that they are none.
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
