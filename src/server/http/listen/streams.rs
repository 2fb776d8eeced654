//! Streams of HTTP/2 connections whose clients read nothing. Each stream has a task of its own. One
//! that makes no progress for too long is reset. The socket then shows no stall, because other
//! streams and pings go on.

use std::{sync::Arc, time::Duration};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::{
    task::futures::TaskLocalFuture,
    task_local,
    time::{Instant, sleep, sleep_until},
};

task_local! {
    static PROGRESS: Progress;
}

/// The time since which a stream's answer waits for its client.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    /// Returns the progress of the current task's stream. Outside HTTP/2 it belongs to no stream.
    pub(super) fn current() -> Self {
        PROGRESS.try_with(Clone::clone).unwrap_or_default()
    }

    /// Records that a piece of the answer was sent: the client has to read it.
    pub(super) fn handed(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Records that the next piece is requested: the client has read all before it.
    pub(super) fn asked(&self) {
        *self.0.lock() = None;
    }

    /// Completes when the client has read nothing for `limit`, or up to a quarter of it later.
    async fn stalled(&self, limit: Duration) {
        let pause = (limit / 4).max(Duration::from_millis(1));
        loop {
            let until = self.0.lock().map(|handed| handed + limit);
            match until {
                None => sleep(pause).await,
                Some(until) if until <= Instant::now() => return,
                Some(until) => sleep_until(until.min(Instant::now() + pause)).await,
            }
        }
    }
}

/// Spawns the tasks of streams.
#[derive(Debug, Clone)]
pub(super) struct StreamTasks {
    limit: Duration,
}

impl StreamTasks {
    /// Returns a spawner of streams that may stall for `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit }
    }
}

/// Runs `stream` until it stalls for `limit`. Then drops it, which resets the stream.
fn watched<F: Future>(
    stream: F,
    limit: Duration,
) -> TaskLocalFuture<Progress, impl Future<Output = ()>> {
    let progress = Progress::default();
    PROGRESS.scope(progress.clone(), async move {
        tokio::select! {
            _ = stream => {}
            () = progress.stalled(limit) => {
                tracing::info!(?limit, "a stream whose client takes nothing is reset");
            }
        }
    })
}

impl<F> Executor<F> for StreamTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(watched(stream, self.limit));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn a_piece_that_is_not_taken_ends_the_stream() {
        let began = Instant::now();
        let stream = async {
            Progress::current().handed();
            pending::<()>().await;
        };
        watched(stream, LIMIT).await;
        assert!(began.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_ready_is_waited_for() {
        let stream = async {
            Progress::current().handed();
            Progress::current().asked();
            pending::<()>().await;
        };
        assert!(timeout(LIMIT * 4, watched(stream, LIMIT)).await.is_err());
    }
}
