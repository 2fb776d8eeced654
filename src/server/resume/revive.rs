//! The answers of an earlier process, after a start.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use tokio::task::JoinHandle;

use super::{
    dormant::Dormant,
    exchange::{Exchange, Mode},
    keeping::Keeping,
    kept::Kept,
    position::escaped,
    prompt::Prompt,
    trial,
    whole::{Unmade, Whole},
};
use crate::{
    api::{AnswerTrial, EngineRequest, Failure, KeptAnswer, KeptRequest, Record, Tenant},
    server::{http::error::ApiError, state::AppState},
};

/// Pause before an answer is made again that needs no client, after an error that may pass.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Least number of times that it is tried.
const NUM_TRIES: usize = 30;

/// An answer that is not complete.
pub(super) struct Restored {
    pub(super) name: Arc<str>,
    /// The processes that died while it was computed.
    pub(super) trial: AnswerTrial,
    /// Whether requests of it had not ended.
    pub(super) is_open: bool,
    pub(super) dormant: Arc<Dormant>,
    mode: Mode,
    /// The place of an answer in one piece.
    whole: Option<Arc<Whole>>,
}

/// Continues the answers that the journal holds from its start.
pub(in crate::server) async fn revive(state: &AppState) {
    if let Some(journal) = state.engine.journal() {
        revive_all(state, journal.take_restored()).await;
    }
}

/// Continues answers of earlier processes, which the journal holds. Their unfinished requests are
/// computed from now on. A stream waits for its client, and an answer in one piece is made at once.
pub(super) async fn revive_all(state: &AppState, answers: Vec<KeptAnswer>) {
    let Some(journal) = state.engine.journal() else { return };
    let (mut num_continued, total) = (0, answers.len());
    let mut restored = Vec::new();
    for answer in answers {
        let name = Arc::clone(&answer.name);
        match restore(state, &answer) {
            Ok(incomplete) => {
                num_continued += 1;
                restored.extend(incomplete);
            }
            Err(reason) => {
                tracing::warn!(%name, reason, "an answer of an earlier process is dropped");
                journal.record(Record::Dropped { name });
            }
        }
    }
    trial::begin(state, restored).await;
    if total > 0 {
        tracing::info!(num_continued, total, "answers of an earlier process are continued");
    }
}

/// Enters an answer where its client asks for it. Returns it if it is not complete.
fn restore(state: &AppState, answer: &KeptAnswer) -> Result<Option<Restored>, String> {
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
        return Ok(None);
    }
    if let Some(difference) = exchange.rendering.difference(&state.rendering, &exchange.route) {
        return Err(format!("this server would write it in another way ({difference})"));
    }
    let mut prompts = match exchange.num_prompts {
        None => None,
        Some(count) => Some(prompts(answer, count, owner)?),
    };
    let trial = answer.trial;
    if trial.is_convicted {
        let num_deaths = trial.num_deaths;
        let name = &answer.name;
        tracing::error!(%name, num_deaths, "an answer has killed its processes and is ended");
        let failed = prompts.iter_mut().flatten();
        failed.for_each(|prompt| prompt.fail(&state.engine, &Failure::Quarantined));
    }
    let (mode, key) = (exchange.mode, exchange.key.clone());
    let has_prompts = prompts.is_some();
    let keeping = Keeping::of(journal, exchange);
    let dormant = Arc::new(Dormant::new(state.clone(), owner, keeping, prompts));
    let has_ended = |request: &KeptRequest| request.end.is_some();
    let is_open = !has_prompts || !answer.requests.iter().all(has_ended);
    let whole = match mode {
        Mode::Stream => {
            state.kept.restore(owner, id, Kept::Dormant(Arc::clone(&dormant)));
            None
        }
        Mode::Background => None,
        Mode::Whole => {
            let whole = Arc::new(Whole::new(dormant.request_hash));
            enter_whole(state, owner, id, key, Arc::clone(&whole));
            Some(whole)
        }
    };
    // The engine gets the requests of other streams when their clients ask.
    let waits = mode == Mode::Stream && (!is_open || !has_prompts);
    let name = Arc::clone(&answer.name);
    Ok((!waits).then_some(Restored { name, trial, is_open, dormant, mode, whole }))
}

impl Restored {
    /// Gives its requests to the engine. Returns once the engine has them. The work that needs no
    /// client goes on.
    pub(super) async fn start(self, state: &AppState) -> Option<JoinHandle<()>> {
        let Self { name, trial, dormant, mode, whole, .. } = self;
        if let Err(error) = dormant.begin(state).await {
            // Its client, or the work below, tries again.
            tracing::warn!(%name, %error, "the engine does not take a restored answer");
        }
        let state = state.clone();
        match (mode, whole) {
            (Mode::Stream, _) | (Mode::Whole, None) => None,
            (Mode::Background, _) => Some(tokio::spawn(async move {
                for _ in 0..num_tries(&state) {
                    let Err(error) = dormant.wake(&state, None).await else { return };
                    tracing::warn!(message = %error.message, "a response was not continued");
                    if error.status != StatusCode::SERVICE_UNAVAILABLE || !dormant.is_asleep() {
                        return;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            })),
            (Mode::Whole, Some(whole)) => {
                let is_convicted = trial.is_convicted;
                Some(tokio::spawn(async move {
                    make(&state, &dormant, whole, is_convicted).await;
                }))
            }
        }
    }
}

/// Returns the number of times that an answer is tried: for as long as its client may ask.
fn num_tries(state: &AppState) -> usize {
    NUM_TRIES.max((state.config.resume_ttl_secs / RETRY_PAUSE.as_secs_f64()) as usize)
}

/// Makes an answer in one piece.
async fn make(state: &AppState, dormant: &Dormant, whole: Arc<Whole>, is_convicted: bool) {
    let unmade = Unmade(whole);
    for _ in 0..num_tries(state) {
        let Err(error) = make_once(state, dormant, &unmade.0, is_convicted).await else { return };
        let message = &error.message;
        tracing::warn!(%message, "an answer of an earlier process was not made");
        let may_pass = error.status == StatusCode::SERVICE_UNAVAILABLE && dormant.is_asleep();
        if is_convicted || !may_pass {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn make_once(
    state: &AppState,
    dormant: &Dormant,
    whole: &Whole,
    is_convicted: bool,
) -> Result<(), ApiError> {
    let (ticket, request) = dormant.exchange(state, None).await?;
    let mut unwritten = dormant.until_written(&ticket);
    let lease = state.engine.memory().lease();
    let work = dormant.repeat(state, ticket.clone(), request);
    let made = match is_convicted {
        false => whole.fill(lease, &ticket, work).await.map(drop),
        true => {
            // Its requests fail without the engine. A beam search would begin anew.
            let error = if ticket.is_adopted() { work.await.err() } else { None };
            let error = error.unwrap_or_else(|| (&Failure::Quarantined).into());
            whole.refuse(error.clone(), ticket.take_keeping());
            Err(error)
        }
    };
    unwritten.is_written = made.is_ok();
    made
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
    state.kept.restore(owner, id, Kept::Whole(whole));
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

/// Returns the prompts of an answer. The engine does not have their requests yet.
fn prompts(
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
    Ok(groups.into_iter().map(Prompt::new).collect())
}
