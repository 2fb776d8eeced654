//! The phases of a server's end, as all its connections see them.

use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// The tokens of the phases. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Phases {
    /// Cancelled when another process accepts the connections. Those of this process end after
    /// their next answer.
    pub(super) leaving: CancellationToken,
    /// Cancelled when the drain begins. From then on, only probes are answered.
    pub(super) draining: CancellationToken,
    /// Cancelled when the drain ends. Connections end once they have their answers.
    pub(super) closing: CancellationToken,
    /// Requests that came before the drain.
    accepted: TaskTracker,
}

impl Phases {
    pub(super) fn new(draining: CancellationToken) -> Self {
        let (leaving, closing) = (CancellationToken::new(), CancellationToken::new());
        Self { leaving, draining, closing, accepted: TaskTracker::new() }
    }

    /// Returns the phases of a connection to another process of the same server: the end alone.
    #[cfg(unix)]
    pub(super) fn of_process(closing: CancellationToken) -> Self {
        Self { closing, ..Self::new(CancellationToken::new()) }
    }

    /// Makes the drain wait until the token is dropped, unless the drain has begun.
    pub(super) fn accept_request(&self) -> Option<TaskTrackerToken> {
        (!self.draining.is_cancelled()).then(|| self.accepted.token())
    }

    /// Completes when all requests from before the drain have ended.
    pub(super) async fn drained(&self) {
        self.accepted.close();
        self.accepted.wait().await;
    }
}
