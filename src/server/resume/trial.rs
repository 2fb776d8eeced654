//! The start of the requests of an earlier process, if one of them may have killed it: see
//! [`crate::api::AnswerTrial`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::task::JoinHandle;

use super::revive::Restored;
use crate::{
    api::{Record, suspect_groups},
    server::state::AppState,
};

/// Time between two looks whether a group of suspects has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Gives the engine the requests of `answers`. With suspects among them, it gets those in groups,
/// and the others after them. Then this returns at once, and the groups go on.
pub(super) async fn begin(state: &AppState, answers: Vec<Restored>) {
    let (convicted, mut others): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.trial.is_convicted);
    for answer in convicted {
        // It has no requests for the engine.
        answer.start(state).await;
    }
    let open = others.iter().filter(|answer| answer.is_open);
    let open: Vec<_> = open.map(|answer| (Arc::clone(&answer.name), answer.trial)).collect();
    let groups = suspect_groups(&open);
    if groups.is_empty() {
        start(state, others).await;
        return;
    }
    let num_suspects: usize = groups.iter().map(Vec::len).sum();
    tracing::warn!(
        num_suspects,
        "processes died again and again while they computed these answers; they are computed a \
         few at a time"
    );
    others.iter().for_each(|answer| answer.dormant.hold_back());
    let state = state.clone();
    tokio::spawn(async move {
        for group in groups {
            let names: BTreeSet<_> = group.into_iter().collect();
            let (group, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|answer| names.contains(&answer.name));
            others = rest;
            let dormants: Vec<_> = group.iter().map(|answer| Arc::clone(&answer.dormant)).collect();
            let works = start(&state, group).await;
            while dormants.iter().any(|dormant| dormant.is_live(&state))
                || works.iter().any(|work| !work.is_finished())
            {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            if state.draining.is_cancelled() {
                return;
            }
        }
        start(&state, others).await;
    });
}

/// Records that the engine gets the requests of `answers`, then starts them.
async fn start(state: &AppState, answers: Vec<Restored>) -> Vec<JoinHandle<()>> {
    let open = answers.iter().filter(|answer| answer.is_open);
    let names: Vec<_> = open.map(|answer| Arc::clone(&answer.name)).collect();
    if let Some(journal) = state.engine.journal().filter(|_| !names.is_empty()) {
        journal.record(Record::Tried { names });
        if let Err(error) = journal.durable().await {
            // The requests are accepted, so they are computed anyway.
            tracing::warn!(%error, "a death of this process would not be counted");
        }
    }
    let mut works = Vec::new();
    for answer in answers {
        works.extend(answer.start(state).await);
    }
    works
}
