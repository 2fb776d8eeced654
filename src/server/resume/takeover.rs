//! The answers of processes that end while this one serves: the process before an upgrade, which
//! ends its requests beside this one, and may be killed meanwhile.

use std::time::Duration;

use super::revive::revive_all;
use crate::server::state::AppState;

/// Time between two looks for journals without a process.
const LOOK: Duration = Duration::from_millis(250);
/// The same while the system has not released the journal of a process that has ended, and the
/// longest time for that.
const RELEASE_LOOK: Duration = Duration::from_millis(20);
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
/// Time between two looks after an error.
const LOOK_AFTER_ERROR: Duration = Duration::from_secs(10);

/// Takes over what other processes leave when they end, for as long as new requests get the model
/// of `state`.
pub(in crate::server) async fn take_over(state: AppState) {
    let mut pause = LOOK;
    loop {
        tokio::select! {
            () = state.superseded.cancelled() => return,
            () = state.draining.cancelled() => return,
            () = predecessor_ended(&state) => {}
            () = tokio::time::sleep(pause) => {
                pause = match look(&state).await {
                    Ok(_) => LOOK,
                    Err(reason) => {
                        warn(&reason);
                        LOOK_AFTER_ERROR
                    }
                };
                continue;
            }
        }
        take_over_predecessor(&state).await;
    }
}

/// Completes when the process before an upgrade has ended.
async fn predecessor_ended(state: &AppState) {
    match &state.predecessor {
        Some(predecessor) => predecessor.ended().await,
        None => std::future::pending().await,
    }
}

/// Takes over the journal of the process before an upgrade, which has just ended, and then the rest
/// of its content.
async fn take_over_predecessor(state: &AppState) {
    let until = tokio::time::Instant::now() + RELEASE_LIMIT;
    while state.engine.journal().is_some() && tokio::time::Instant::now() < until {
        match look(state).await {
            Ok(true) => break,
            // The system has not released its journal yet.
            Ok(false) => tokio::time::sleep(RELEASE_LOOK).await,
            Err(reason) => {
                warn(&reason);
                break;
            }
        }
    }
    if let Some(predecessor) = &state.predecessor {
        predecessor.enter_remainder(state);
    }
}

fn warn(reason: &str) {
    tracing::warn!(reason, "a journal of another process is not taken over now");
}

/// Returns whether there was a journal to take over.
async fn look(state: &AppState) -> Result<bool, String> {
    if state.engine.journal().is_none() {
        return Ok(false);
    }
    let engine = state.engine.clone();
    let looked = tokio::task::spawn_blocking(move || engine.take_over_journals()).await;
    let looked = looked.map_err(|error| error.to_string())?;
    let Some(mut left) = looked.map_err(|error| error.to_string())? else { return Ok(false) };
    let answers = std::mem::take(&mut left.answers);
    let num_answers = answers.len();
    // A disk that does not answer must not keep the answers from their clients.
    tokio::spawn(left.settle());
    revive_all(state, answers).await;
    tracing::info!(num_answers, "the journal of a process that has ended was taken over");
    Ok(true)
}
