//! The activity of a connection, so that an idle one can be ended.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep_until},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::phases::Phases;

/// The first bytes of every HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a connection may be without a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Limit from the first byte of a request to the end of its headers.
    pub(super) headers: Duration,
    /// Limit without a request. Other frames of an HTTP/2 client, for example pings, do not count
    /// as one.
    pub(super) silence: Duration,
}

/// The activity, shared by the parts of one connection.
#[derive(Debug, Clone)]
pub(in crate::server) struct Activity {
    state: Arc<Mutex<State>>,
    phases: Phases,
    /// The protocol after HTTP, if the connection was upgraded.
    upgrades: TaskTracker,
}

/// The protocol that the first bytes show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    /// Number of bytes of HTTP/2's preface that came, with no other bytes.
    Unknown(usize),
    Http1,
    Http2,
}

impl Spoken {
    fn after(self, bytes: &[u8]) -> Self {
        let Self::Unknown(seen) = self else { return self };
        let missing = &HTTP2_PREFACE[seen..];
        let length = missing.len().min(bytes.len());
        if missing[..length] != bytes[..length] {
            Self::Http1
        } else if length == missing.len() {
            Self::Http2
        } else {
            Self::Unknown(seen + length)
        }
    }
}

#[derive(Debug)]
struct State {
    spoken: Spoken,
    /// Requests whose answers are not complete.
    open_requests: usize,
    /// When the last of them ended.
    idle_since: Instant,
    /// When the first byte of the next request came.
    receiving_since: Option<Instant>,
}

impl Activity {
    /// Returns the activity of a new connection.
    pub(super) fn new(phases: Phases) -> Self {
        let state = State {
            spoken: Spoken::Unknown(0),
            open_requests: 0,
            idle_since: Instant::now(),
            receiving_since: None,
        };
        Self { state: Arc::new(Mutex::new(state)), phases, upgrades: TaskTracker::new() }
    }

    /// Returns whether the connection's protocol is HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.state.lock().spoken == Spoken::Http2
    }

    /// Counts a request as open until the returned value is dropped.
    pub(super) fn begin_request(&self) -> OpenRequest {
        let mut state = self.state.lock();
        state.open_requests += 1;
        state.receiving_since = None;
        OpenRequest { activity: self.clone(), _accepted: self.phases.accept_request() }
    }

    /// Counts the connection as one of another protocol until the returned value is dropped. It
    /// keeps its place among the connections until then, and counts as an open request.
    pub(in crate::server) fn upgrade(&self) -> Upgraded {
        Upgraded { open: self.begin_request(), _token: self.upgrades.token() }
    }

    /// Completes when the protocol after HTTP has ended. Without one, completes at once.
    pub(super) async fn upgrade_ended(&self) {
        self.upgrades.close();
        self.upgrades.wait().await;
    }

    /// Restarts the measurement of idle time.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        (state.idle_since, state.receiving_since) = (Instant::now(), None);
    }

    /// Completes once there was no request for as long as `patience` allows, or up to
    /// `patience.headers` later.
    pub(super) async fn idle(&self, patience: Patience) {
        loop {
            let (now, until) = (Instant::now(), self.idle_until(patience));
            if until.is_some_and(|until| until <= now) {
                return;
            }
            // A first byte may come during the sleep.
            let next = now + patience.headers;
            sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
    }

    fn idle_until(&self, patience: Patience) -> Option<Instant> {
        let state = self.state.lock();
        let until = match state.receiving_since {
            Some(began) => began + patience.headers,
            None => state.idle_since + patience.silence,
        };
        (state.open_requests == 0).then_some(until)
    }

    fn received(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.spoken = state.spoken.after(bytes);
        if state.spoken == Spoken::Http2 {
            // Requests come in frames, among others. hyper limits incomplete ones.
            state.receiving_since = None;
        } else if state.open_requests == 0 && state.receiving_since.is_none() {
            state.receiving_since = Some(Instant::now());
        }
    }
}

/// An open request. It is dropped when its answer is complete or its client has left.
#[derive(Debug)]
pub(super) struct OpenRequest {
    activity: Activity,
    _accepted: Option<TaskTrackerToken>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.open_requests -= 1;
        (state.idle_since, state.receiving_since) = (Instant::now(), None);
    }
}

/// A connection that was upgraded from HTTP to another protocol.
#[derive(Debug)]
pub(in crate::server) struct Upgraded {
    open: OpenRequest,
    _token: TaskTrackerToken,
}

impl Upgraded {
    /// Returns the token that is cancelled when all connections end.
    pub(in crate::server) fn closing(&self) -> CancellationToken {
        self.open.activity.phases.closing.clone()
    }
}

/// A connection that records when bytes come.
pub(super) struct Noticed<S> {
    io: S,
    activity: Activity,
}

impl<S> Noticed<S> {
    pub(super) fn new(io: S, activity: Activity) -> Self {
        Self { io, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noticed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if let Some(bytes @ [_, ..]) = buffer.filled().get(before..) {
            self.activity.received(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noticed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn fresh() -> Activity {
        Activity::new(Phases::new(CancellationToken::new()))
    }

    const PATIENCE: Patience =
        Patience { headers: Duration::from_millis(20), silence: Duration::from_millis(60) };

    async fn idle_after(activity: &Activity) -> Duration {
        let began = Instant::now();
        activity.idle(PATIENCE).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_may_last_longer_than_headers() {
        let activity = fresh();
        assert!(idle_after(&activity).await >= PATIENCE.silence);
        let activity = fresh();
        activity.received(b"GET /");
        let waited = idle_after(&activity).await;
        assert!(waited >= PATIENCE.headers && waited < PATIENCE.silence, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_request_is_not_idle_however_long_it_takes() {
        let activity = fresh();
        let (first, second) = (activity.begin_request(), activity.begin_request());
        activity.received(b"GET /");
        drop(first);
        assert!(timeout(PATIENCE.silence * 2, activity.idle(PATIENCE)).await.is_err());
        drop(second);
        assert!(idle_after(&activity).await >= PATIENCE.silence, "it counts from its end");
    }

    #[tokio::test(start_paused = true)]
    async fn other_http2_frames_change_nothing() {
        let activity = fresh();
        let (first, rest) = HTTP2_PREFACE.split_at(5);
        activity.received(first);
        assert!(!activity.is_http2());
        activity.received(&[rest, b"ping"].concat());
        assert!(activity.is_http2());
        let chatty = async {
            loop {
                tokio::time::sleep(PATIENCE.headers / 4).await;
                activity.received(b"ping");
            }
        };
        let waited = tokio::select! {
            waited = idle_after(&activity) => waited,
            () = chatty => unreachable!(),
        };
        assert!(waited >= PATIENCE.headers && waited < PATIENCE.silence * 4, "{waited:?}");
    }

    #[test]
    fn other_first_bytes_are_http1() {
        let spoken = Spoken::Unknown(0).after(b"PRI").after(b"VATE");
        assert_eq!(spoken, Spoken::Http1);
        assert_eq!(spoken.after(HTTP2_PREFACE), Spoken::Http1);
    }
}
