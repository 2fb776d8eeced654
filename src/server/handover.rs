//! `POST /upgrade`: another process takes the listening socket of this one.
//!
//! The command line starts the other process, because it knows the program and its arguments
//! (`src/cli/serve/upgrade.rs`). The server stops to accept connections when it has the socket.

use axum::{Json, extract::State};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{http::error::ApiError, state::AppState, swap::Turn};

/// An order to start another process. While it exists, the model is not swapped.
#[derive(Debug)]
pub(crate) struct UpgradeOrder {
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

/// The parts of a server that hands its socket over, or has got it from another process.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Takes orders. `None`: the server cannot be upgraded.
    pub(crate) orders: Option<mpsc::Sender<UpgradeOrder>>,
    /// Cancelled when another process has the socket.
    pub(crate) taken_over: CancellationToken,
    /// Cancelled when the server begins to end. A process that does not serve yet ends, too.
    pub(crate) ending: CancellationToken,
    /// Gets a message when the server listens.
    pub(crate) listening: Option<oneshot::Sender<()>>,
}

/// Answers when the other process serves. This one then ends its requests, and itself.
pub(super) async fn upgrade(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let (Some(orders), Some(swaps)) = (&state.upgrades, &state.swaps) else {
        let message = "only `playhouse serve` can be upgraded, on Unix, and not as a process whose \
                       end ends its container or service";
        return Err(ApiError::not_implemented("upgrade", message));
    };
    if state.engine.journal().is_some() {
        let message = "upgrade is not supported with a journal, which one process has at a time: \
                       restart the server, and clients continue their streams";
        return Err(ApiError::not_implemented("upgrade", message));
    }
    let turn = swaps.begin_upgrade()?;
    let over = || ApiError::conflict("the server ends");
    let (reply, outcome) = oneshot::channel();
    orders.try_send(UpgradeOrder { reply, turn }).map_err(|_| over())?;
    match outcome.await.map_err(|_| over())? {
        Ok(pid) => Ok(Json(json!({"status": "upgraded", "pid": pid}))),
        Err(why) => Err(ApiError::not_upgraded(why)),
    }
}
