//! `POST /upgrade`: another process takes the listening socket of this one.
//!
//! The command line starts the other process, because it knows the program and its arguments
//! (`src/cli/serve/upgrade.rs`). The server stops to accept connections when it has the socket.
//!
//! Clients of the first process come to the second one for their streams, answers and stored
//! responses. So the two stay connected: the second one ([`predecessor`]) passes these requests on
//! to the first one ([`successor`]). At its end, the first one sends its content
//! ([`remainder`]).

#[cfg_attr(not(unix), allow(dead_code, unused, reason = "no process hands its socket over"))]
mod predecessor;
mod remainder;
#[cfg_attr(not(unix), allow(dead_code, unused, reason = "no process hands its socket over"))]
mod successor;

use std::time::Duration;

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(super) use self::{
    predecessor::{Predecessor, StillRuns, pass_on},
    remainder::{Estate, Part},
    successor::{Successor, taken_over},
};
use super::{
    http::{error::ApiError, extract::QueryOf},
    state::AppState,
    swap::Turn,
};

/// The time that a new process has to load its model, and the longest: a day.
const SECONDS: u64 = 30 * 60;
const SECONDS_MAX: u64 = 86_400;

/// An order to start another process. While it exists, the model is not swapped.
#[derive(Debug)]
pub(crate) struct UpgradeOrder {
    /// The time that it has until it serves.
    pub(crate) limit: Duration,
    reply: oneshot::Sender<Result<u32, String>>,
    turn: Turn,
}

impl UpgradeOrder {
    /// Answers with the id of the process that serves now, or with the reason why there is none.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no upgrades"))]
    pub(crate) fn answer(self, outcome: Result<u32, String>) {
        if outcome.is_ok() {
            self.turn.keep();
        }
        // The client may have left.
        let _ = self.reply.send(outcome);
    }
}

/// The connection between a process and the one that takes its socket over.
#[cfg(unix)]
pub(crate) type Link = tokio::net::UnixStream;
/// This system hands no sockets over.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) enum Link {}

/// The parts of a server that hands its socket over, or has got it from another process.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Takes orders. `None`: the server cannot be upgraded.
    pub(crate) orders: Option<mpsc::Sender<UpgradeOrder>>,
    /// Gets the connection to the process that has the socket now. `None`: the server cannot be
    /// upgraded.
    pub(crate) taken_over: Option<oneshot::Receiver<Link>>,
    /// Gets the connection to the process that had the socket before, once this one has reported
    /// that it serves. `None`: there is no such process.
    pub(crate) predecessor: Option<oneshot::Receiver<Link>>,
    /// Cancelled when the server begins to end. A process that does not serve yet ends, too.
    pub(crate) ending: CancellationToken,
    /// Gets a message when the server listens.
    pub(crate) listening: Option<oneshot::Sender<()>>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct UpgradeQuery {
    /// Seconds that the new process has until it serves.
    timeout: u64,
}

impl Default for UpgradeQuery {
    fn default() -> Self {
        Self { timeout: SECONDS }
    }
}

impl UpgradeQuery {
    fn limit(&self) -> Result<Duration, ApiError> {
        let seconds = Some(self.timeout).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
        seconds.map(Duration::from_secs).ok_or_else(|| {
            let seconds = self.timeout;
            let message = format!("timeout must be in [1, {SECONDS_MAX}] seconds, got {seconds}");
            ApiError::invalid("timeout", message)
        })
    }
}

/// Answers when the other process serves. This one then ends its requests, and itself.
pub(super) async fn upgrade(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<UpgradeQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = query.limit()?;
    let (Some(orders), Some(swaps)) = (&state.upgrades, &state.swaps) else {
        let message = "only `playhouse serve` can be upgraded, on Unix, and not as a process whose \
                       end ends its container or service";
        return Err(ApiError::not_implemented("upgrade", message));
    };
    let turn = swaps.begin_upgrade()?;
    let over = || ApiError::conflict("the server ends");
    let (reply, outcome) = oneshot::channel();
    orders.try_send(UpgradeOrder { limit, reply, turn }).map_err(|_| over())?;
    match outcome.await.map_err(|_| over())? {
        Ok(pid) => Ok(Json(json!({"status": "upgraded", "pid": pid}))),
        Err(why) => Err(ApiError::not_upgraded(why)),
    }
}
