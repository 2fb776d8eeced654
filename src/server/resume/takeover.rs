//! The answers of processes that end while this one serves: the process before an upgrade, which
//! ends its requests beside this one, and may be killed meanwhile.

use std::time::Duration;

use super::revive::revive_all;
use crate::{engine::TakeoverError, server::state::AppState};

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
            () = state.superseded.cancelled() => return await_predecessor(&state).await,
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

/// Takes over the content of the process before, if another upgrade has come before its end. Its
/// journal is for the process of that upgrade.
async fn await_predecessor(state: &AppState) {
    let (true, Some(predecessor)) = (state.leaving.is_cancelled(), &state.predecessor) else {
        return;
    };
    tokio::select! {
        () = state.draining.cancelled() => {}
        () = predecessor.ended() => predecessor.enter_remainder(state),
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
    while tokio::time::Instant::now() < until {
        match look(state).await {
            // A process ends before the system releases its journal.
            Ok(true) => tokio::time::sleep(RELEASE_LOOK).await,
            Ok(false) => break,
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

/// Takes over the journals without a process. Returns whether another process had a journal before.
async fn look(state: &AppState) -> Result<bool, String> {
    if state.engine.journal().is_none() {
        return Ok(false);
    }
    let engine = state.engine.clone();
    let look = move || {
        let is_shared = engine.shares_journals()?;
        Ok::<_, TakeoverError>((is_shared, engine.take_over_journals()?))
    };
    let looked = tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())?;
    let (is_shared, left) = looked.map_err(|error| error.to_string())?;
    let Some(mut left) = left else { return Ok(is_shared) };
    let answers = std::mem::take(&mut left.answers);
    let num_answers = answers.len();
    // A disk that does not answer must not keep the answers from their clients.
    tokio::spawn(left.settle());
    revive_all(state, answers).await;
    if num_answers > 0 {
        tracing::info!(num_answers, "the journal of a process that has ended was taken over");
    }
    Ok(is_shared)
}
