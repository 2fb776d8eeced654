//! Connections whose clients stop reading. A write that makes no progress for too long fails. This
//! ends the connection, its handler, and with it the request.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection whose writes fail after `limit` without progress.
pub(super) struct Impatient<S> {
    io: S,
    limit: Duration,
    /// The timer of a write that waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Wraps `io`, whose writes may wait for at most `limit`.
    pub(super) fn new(io: S, limit: Duration) -> Self {
        Self { io, limit, stalled: None }
    }
}

impl<S: AsyncWrite + Unpin> Impatient<S> {
    /// Passes on a write that made progress. A write that waits fails once it has waited for too
    /// long.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.io), context) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let limit = self.limit;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(context));
        tracing::info!(?limit, "a client that reads nothing is cut off");
        let message = format!("the client took nothing for {limit:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watch(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(context, |io, context| io.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |io, context| io.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |io, context| io.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, future::poll_fn};

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(40);

    /// Takes as many bytes at each write as its script says. 0 means that the write waits.
    struct Scripted(VecDeque<usize>);

    impl AsyncWrite for Scripted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.0.pop_front().unwrap_or_default() {
                0 => Poll::Pending,
                taken => Poll::Ready(Ok(taken)),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn connection(script: &[usize]) -> Impatient<Scripted> {
        Impatient::new(Scripted(script.iter().copied().collect()), LIMIT)
    }

    async fn write(connection: &mut Impatient<Scripted>) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *connection).poll_write(context, b"abc")).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_progress_fails_after_the_limit() {
        let (mut stalled, began) = (connection(&[3]), Instant::now());
        assert_eq!(write(&mut stalled).await.unwrap(), 3);
        let error = write(&mut stalled).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_gives_it_the_whole_limit_again() {
        let mut slow = connection(&[0, 1, 0]);
        // It is polled at once and again at the timeout's end.
        let taken = tokio::time::timeout(LIMIT / 2, write(&mut slow)).await.unwrap();
        assert_eq!(taken.unwrap(), 1);
        let began = Instant::now();
        write(&mut slow).await.unwrap_err();
        assert!(began.elapsed() >= LIMIT);
    }
}
