//! What a connection is doing, so that one that does nothing can be ended.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep_until},
};

/// How long a connection may be without a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// From the first byte of a request to the end of its headers.
    pub(super) headers: Duration,
    /// With nothing from the client at all.
    pub(super) silence: Duration,
}

/// Shared by the parts of one connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Requests whose answers are not complete.
    open_requests: usize,
    /// When the last of them ended.
    idle_since: Instant,
    /// When the first byte of the next came.
    receiving_since: Option<Instant>,
}

impl Activity {
    /// That of a connection which has just been made.
    pub(super) fn new() -> Self {
        let state = State { open_requests: 0, idle_since: Instant::now(), receiving_since: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts a request as open until what is returned is dropped.
    pub(super) fn begin_request(&self) -> OpenRequest {
        let mut state = self.0.lock();
        state.open_requests += 1;
        state.receiving_since = None;
        OpenRequest(self.clone())
    }

    /// Forgets how long it has been idle.
    pub(super) fn restart(&self) {
        let mut state = self.0.lock();
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
            // A first byte may come while this sleeps.
            let next = now + patience.headers;
            sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
    }

    fn idle_until(&self, patience: Patience) -> Option<Instant> {
        let state = self.0.lock();
        let until = match state.receiving_since {
            Some(began) => began + patience.headers,
            None => state.idle_since + patience.silence,
        };
        (state.open_requests == 0).then_some(until)
    }

    fn received(&self) {
        let mut state = self.0.lock();
        if state.open_requests == 0 && state.receiving_since.is_none() {
            state.receiving_since = Some(Instant::now());
        }
    }
}

/// Dropped when the answer to a request is complete, or nobody wants it any more.
#[derive(Debug)]
pub(super) struct OpenRequest(Activity);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open_requests -= 1;
        (state.idle_since, state.receiving_since) = (Instant::now(), None);
    }
}

/// The body of an answer: its request is open until it was sent.
pub(super) struct Counted<B> {
    body: B,
    _open: OpenRequest,
}

impl<B> Counted<B> {
    pub(super) fn new(body: B, open: OpenRequest) -> Self {
        Self { body, _open: open }
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that tells when bytes come.
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
        if buffer.filled().len() > before {
            self.activity.received();
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

    use super::*;

    const PATIENCE: Patience =
        Patience { headers: Duration::from_millis(20), silence: Duration::from_millis(60) };

    async fn idle_after(activity: &Activity) -> Duration {
        let began = Instant::now();
        activity.idle(PATIENCE).await;
        began.elapsed()
    }

    #[tokio::test]
    async fn silence_may_last_longer_than_headers() {
        let activity = Activity::new();
        assert!(idle_after(&activity).await >= PATIENCE.silence);
        let activity = Activity::new();
        activity.received();
        let waited = idle_after(&activity).await;
        assert!(waited >= PATIENCE.headers && waited < PATIENCE.silence, "{waited:?}");
    }

    #[tokio::test]
    async fn an_open_request_is_not_idle_however_long_it_takes() {
        let activity = Activity::new();
        let (first, second) = (activity.begin_request(), activity.begin_request());
        activity.received();
        drop(first);
        assert!(timeout(PATIENCE.silence * 2, activity.idle(PATIENCE)).await.is_err());
        drop(second);
        assert!(idle_after(&activity).await >= PATIENCE.silence, "it counts from its end");
    }
}
