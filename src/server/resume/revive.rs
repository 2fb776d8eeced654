//! The answers of an earlier process, after a start.

use std::sync::Arc;

use super::{
    dormant::{Dormant, Prompt},
    exchange::{Exchange, Mode},
    keeping::Keeping,
    kept::Kept,
    position::escaped,
    whole::{self, Whole},
};
use crate::{
    api::{EngineRequest, KeptAnswer, Record, Tenant},
    server::{http::error::ApiError, state::AppState},
};

/// Continues the answers that the journal holds. Their unfinished requests are computed from now
/// on. A stream waits for its client, and an answer in one piece is made at once.
pub(in crate::server) async fn revive(state: &AppState) {
    let Some(journal) = state.engine.journal() else { return };
    let answers = journal.take_restored();
    let (mut num_continued, total) = (0, answers.len());
    for answer in answers {
        let name = Arc::clone(&answer.name);
        match revive_one(state, answer).await {
            Ok(()) => num_continued += 1,
            Err(reason) => {
                tracing::warn!(%name, reason, "an answer of an earlier process is dropped");
                journal.record(Record::Dropped { name });
            }
        }
    }
    if total > 0 {
        tracing::info!(num_continued, total, "answers of an earlier process are continued");
    }
}

async fn revive_one(state: &AppState, answer: KeptAnswer) -> Result<(), String> {
    let exchange = Exchange::from_bytes(&answer.data).map_err(|error| error.to_string())?;
    let owner = owner(state, &exchange)?;
    let id = escaped(&exchange.id);
    let journal = state.engine.journal().cloned();
    if let Some(given) = exchange.answer.clone() {
        let lease = state.engine.memory().lease();
        lease.add(given.body.len()).map_err(|error| error.to_string())?;
        let hash = super::ticket::request_hash(&exchange.route, &exchange.body);
        let key = exchange.key.clone();
        let whole = Whole::restored(hash, given, Keeping::of(journal, exchange), lease);
        enter_whole(state, owner, id, key, Arc::new(whole));
        return Ok(());
    }
    let prompts = match exchange.num_prompts {
        None => None,
        Some(count) => Some(prompts(state, &answer, count, owner).await?),
    };
    let (mode, key) = (exchange.mode, exchange.key.clone());
    let dormant = Arc::new(Dormant::new(owner, Keeping::of(journal, exchange), prompts));
    let state = state.clone();
    match mode {
        Mode::Stream => state.kept.enter(owner, id, Kept::Dormant(dormant)),
        Mode::Background => {
            tokio::spawn(async move {
                if let Err(error) = dormant.wake(&state, None).await {
                    tracing::warn!(message = %error.message, "a response is not continued");
                }
            });
        }
        Mode::Whole => {
            let whole = Arc::new(Whole::new(dormant.request_hash));
            enter_whole(&state, owner, id, key, Arc::clone(&whole));
            tokio::spawn(async move { make(&state, &dormant, whole).await });
        }
    }
    Ok(())
}

async fn make(state: &AppState, dormant: &Arc<Dormant>, whole: Arc<Whole>) {
    let made = async {
        let (ticket, request) = dormant.exchange(state, None).await?;
        let work = dormant.repeat(state, ticket.clone(), request);
        whole::make(state, whole, ticket, work).await
    };
    if let Err(ApiError { message, .. }) = made.await {
        tracing::warn!(%message, "an answer of an earlier process was not made");
    }
}

fn enter_whole(
    state: &AppState,
    owner: Option<Tenant>,
    id: String,
    key: Option<String>,
    whole: Arc<Whole>,
) {
    if let Some(key) = key {
        state.kept.restore_key(owner, key, Arc::clone(&whole));
    }
    state.kept.enter(owner, id, Kept::Whole(whole));
}

/// Returns the tenant of the key that the exchange came with.
fn owner(state: &AppState, exchange: &Exchange) -> Result<Option<Tenant>, String> {
    match (exchange.owner, state.keys.are_needed()) {
        (None, false) => Ok(None),
        (Some(name), true) => match state.keys.named(name) {
            Some(tenant) => Ok(Some(tenant)),
            None => Err("its API key is no longer known".to_owned()),
        },
        (None, true) => Err("it came without an API key, and keys are needed now".to_owned()),
        (Some(_), false) => Err("it came with an API key, and there are none now".to_owned()),
    }
}

/// Returns the prompts of an answer. If one of its requests had not ended, the engine gets all.
async fn prompts(
    state: &AppState,
    answer: &KeptAnswer,
    count: usize,
    owner: Option<Tenant>,
) -> Result<Vec<Prompt>, String> {
    if answer.requests.iter().any(|request| request.end == Some(false)) {
        return Err("it was ended before its output was complete".to_owned());
    }
    let mut groups: Vec<Vec<Arc<EngineRequest>>> = Vec::new();
    for held in &answer.requests {
        let request = EngineRequest { tenant: owner, ..EngineRequest::clone(&held.request) };
        match groups.last_mut().filter(|_| request.choice > 0) {
            Some(group) => group.push(Arc::new(request)),
            None => groups.push(vec![Arc::new(request)]),
        }
    }
    if groups.len() != count {
        let accepted = groups.len();
        return Err(format!("{accepted} of its {count} prompts had been accepted"));
    }
    let is_open = answer.requests.iter().any(|request| request.end.is_none());
    let mut prompts: Vec<_> = groups.into_iter().map(Prompt::new).collect();
    if is_open {
        for prompt in &mut prompts {
            prompt.begin(state).await.map_err(|error| error.to_string())?;
        }
    }
    Ok(prompts)
}
