//! A stream that outlives its connections: its events so far, and the source of further ones.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Bytes, response::Response};
use futures_util::{StreamExt, stream, stream::BoxStream};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

use super::{keeping::Keeping, transfer::EndedStream};
use crate::{
    api::Lease,
    server::http::{error::ApiError, sse},
};

/// An event as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Event {
    /// Its place. An event that reports a failure has none, so that its client can ask again.
    pub(in crate::server) position: Option<String>,
    pub(in crate::server) bytes: Bytes,
}

/// The further events of a stream. A drop ends the requests of those that are not there yet.
pub(super) type Source = BoxStream<'static, Vec<Event>>;

/// Memory of an event beside its bytes and its place.
const EVENT_BYTES: usize = size_of::<Event>() + 32;

/// One stream. Any number of connections read it. The first of them that waits for an event takes
/// it from the source, for all.
pub(in crate::server) struct Held {
    /// Hash of the route and the body.
    pub(super) request_hash: [u8; 32],
    grace: Duration,
    /// The place of the event before the first. `None` if the stream is whole.
    base: Option<String>,
    lease: Lease,
    log: Mutex<Log>,
    news: Notify,
    source: tokio::sync::Mutex<Option<Source>>,
    _keeping: Option<Keeping>,
}

struct Log {
    events: VecDeque<Event>,
    /// Number of events that were removed.
    num_removed: usize,
    num_bytes: usize,
    state: State,
    num_readers: usize,
    /// Number of times that the last reader left.
    num_departures: u64,
    /// Since when a restored stream waits for its first reader. Until then it is never deserted.
    awaited_since: Option<Instant>,
}

/// The state of a stream, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// All events are there.
    Over(Instant),
    /// Its requests were ended, because no connection read it.
    Cancelled,
}

/// The outcome of a look at the log.
enum Look {
    News(Vec<Bytes>, usize),
    /// Nothing yet.
    Wait,
    /// Nothing follows.
    Over,
}

impl Held {
    pub(super) fn new(
        source: Source,
        keeping: Keeping,
        request_hash: [u8; 32],
        base: Option<String>,
        lease: Lease,
    ) -> Arc<Self> {
        let grace = Duration::from_millis(keeping.exchange().grace_ms);
        Arc::new(Self {
            request_hash,
            grace,
            base,
            lease,
            log: Mutex::new(Log::new()),
            news: Notify::new(),
            source: tokio::sync::Mutex::new(Some(source)),
            _keeping: Some(keeping),
        })
    }

    /// Returns a stream that has ended in another process. `None` if there is no memory for it.
    pub(super) fn of_another(
        stream: EndedStream,
        request_hash: [u8; 32],
        ended: Instant,
        lease: Lease,
    ) -> Option<Arc<Self>> {
        let events = stream.events.into_iter();
        let events = events.map(|(position, bytes)| Event { position, bytes: bytes.into() });
        let mut log = Log { events: events.collect(), ..Log::new() };
        log.num_bytes = log.events.iter().map(Event::memory).sum();
        lease.add(log.num_bytes).ok()?;
        log.state = State::Over(ended);
        Some(Arc::new(Self {
            request_hash,
            grace: Duration::ZERO,
            base: stream.base,
            lease,
            log: Mutex::new(log),
            news: Notify::new(),
            source: tokio::sync::Mutex::new(None),
            _keeping: None,
        }))
    }

    /// Returns the events of a stream that has ended, and the time since. `None` if it runs, or
    /// does not keep all of its events.
    pub(super) fn ended(&self, now: Instant) -> Option<(EndedStream, Duration)> {
        let log = self.log.lock();
        let State::Over(since) = log.state else { return None };
        let copy = |event: &Event| (event.position.clone(), event.bytes.to_vec());
        let events = log.events.iter().map(copy).collect();
        let stream = EndedStream { base: self.base.clone(), events };
        (log.num_removed == 0).then(|| (stream, now.saturating_duration_since(since)))
    }

    /// Keeps the stream, of an earlier process, until a connection has begun to read it. A client
    /// that leaves before has had nothing of it.
    pub(super) fn await_reader(&self) {
        self.log.lock().awaited_since = Some(Instant::now());
    }

    /// Returns the events after the one at `position`, or all of a whole stream, as they come.
    ///
    /// # Errors
    /// 404 if the events after it are not kept, or no event is at that place.
    pub(super) fn follow(self: &Arc<Self>, position: Option<&str>) -> Result<Response, ApiError> {
        let mut log = self.log.lock();
        let next = match position == self.base.as_deref() {
            true => (log.num_removed == 0).then_some(0),
            false => position.and_then(|position| log.next_after(position)),
        };
        let next = next.filter(|_| log.state != State::Cancelled);
        let next = next.ok_or_else(|| {
            let message = "the stream has no events after this id, or keeps them no longer";
            ApiError::missing("Last-Event-ID", message.to_owned())
        })?;
        log.num_readers += 1;
        drop(log);
        let reader = Reader { held: Arc::clone(self), next };
        let batches = stream::unfold(reader, |mut reader| async move {
            let events = reader.next().await?;
            Some((events, reader))
        });
        Ok(sse::batches(batches))
    }

    /// Takes the next events from the source into the log.
    async fn drive(&self) {
        let mut source = self.source.lock().await;
        let Some(events) = source.as_mut() else { return };
        match events.next().await {
            Some(events) => self.push(events),
            None => {
                *source = None;
                let mut log = self.log.lock();
                if log.state == State::Open {
                    log.state = State::Over(Instant::now());
                }
            }
        }
        drop(source);
        self.news.notify_waiters();
    }

    fn push(&self, events: Vec<Event>) {
        let mut log = self.log.lock();
        let added = events.iter().map(Event::memory).sum::<usize>();
        let num_new = events.len();
        log.events.extend(events);
        if self.lease.add(added).is_ok() {
            log.num_bytes += added;
            return;
        }
        // No memory is left: only the newest events stay, so that its readers go on.
        let old = log.events.len() - num_new;
        log.events.drain(..old);
        log.num_removed += old;
        self.lease.shrink(std::mem::take(&mut log.num_bytes));
    }

    /// Reads the stream without a connection, for as long as it may go on without one after this
    /// departure. Then its requests end. A later departure has a time of its own.
    async fn go_on_alone(self: Arc<Self>, departure: u64) {
        let until = tokio::time::Instant::now() + self.grace;
        while self.log.lock().is_deserted_since(departure) {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            if timeout(left, self.drive()).await.is_err() {
                return self.cancel_if_deserted_since(departure).await;
            }
        }
    }

    async fn cancel_if_deserted_since(&self, departure: u64) {
        let mut source = self.source.lock().await;
        let mut log = self.log.lock();
        let ended = log.is_deserted_since(departure).then(|| {
            log.state = State::Cancelled;
            source.take()
        });
        drop(log);
        drop(ended);
    }

    /// Returns whether no client may ask for the stream any longer: it was cancelled, ended longer
    /// than `ttl` ago, or waits for longer for its first reader.
    pub(super) fn has_expired(&self, ttl: Duration, now: Instant) -> bool {
        let log = self.log.lock();
        match log.state {
            State::Open => {
                let has_waited = |since| now.saturating_duration_since(since) >= ttl;
                log.num_readers == 0 && log.awaited_since.is_some_and(has_waited)
            }
            State::Over(since) => {
                log.num_readers == 0 && now.saturating_duration_since(since) >= ttl
            }
            State::Cancelled => true,
        }
    }
}

impl Event {
    /// Returns the bytes of memory that it takes.
    fn memory(&self) -> usize {
        self.bytes.len() + self.position.as_ref().map_or(0, String::len) + EVENT_BYTES
    }
}

impl Log {
    /// Returns the log of a stream that begins.
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            num_removed: 0,
            num_bytes: 0,
            state: State::Open,
            num_readers: 0,
            num_departures: 0,
            awaited_since: None,
        }
    }

    /// Returns whether the stream is unfinished, and no connection reads it.
    fn is_deserted(&self) -> bool {
        self.num_readers == 0 && self.state == State::Open && self.awaited_since.is_none()
    }

    /// Returns whether no connection has come since this departure.
    fn is_deserted_since(&self, departure: u64) -> bool {
        self.is_deserted() && self.num_departures == departure
    }

    /// Returns the number of the event after the one at `position`, if that is there.
    fn next_after(&self, position: &str) -> Option<usize> {
        let is_it = |event: &Event| event.position.as_deref() == Some(position);
        let index = self.events.iter().rposition(is_it)?;
        Some(self.num_removed + index + 1)
    }

    fn look(&self, next: usize) -> Look {
        let index = next.saturating_sub(self.num_removed);
        let news = self.events.range(index.min(self.events.len())..);
        let news: Vec<_> = news.map(|event| event.bytes.clone()).collect();
        match (news.is_empty(), self.state) {
            // An event before these is lost to this reader, which was too slow.
            (false, _) if next < self.num_removed => Look::Over,
            (false, _) => Look::News(news, self.num_removed + self.events.len()),
            (true, State::Open) => Look::Wait,
            (true, _) => Look::Over,
        }
    }
}

/// A connection that reads a stream.
struct Reader {
    held: Arc<Held>,
    /// The number of its next event.
    next: usize,
}

impl Reader {
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let news = self.held.news.notified();
            let look = {
                let mut log = self.held.log.lock();
                log.awaited_since = None;
                log.look(self.next)
            };
            match look {
                Look::News(events, next) => {
                    self.next = next;
                    return Some(events);
                }
                Look::Over => return None,
                Look::Wait => {}
            }
            tokio::select! {
                () = news => {}
                () = self.held.drive() => {}
            }
        }
    }
}

/// The last connection that leaves an unfinished stream ends its requests, at once or after the
/// time that the client asked for.
impl Drop for Reader {
    fn drop(&mut self) {
        let mut log = self.held.log.lock();
        log.num_readers -= 1;
        if !log.is_deserted() {
            return;
        }
        log.num_departures += 1;
        let departure = log.num_departures;
        drop(log);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Arc::clone(&self.held).go_on_alone(departure));
        }
    }
}

#[cfg(test)]
mod tests;
