//! Answers that outlive their connections, and with a journal the process.
//!
//! - A client whose connection was cut continues its stream: by the same request with
//!   `Last-Event-ID`, or by `GET /v1/streams/{id}?after=…` ([`route`]). Each event of a stream that
//!   can be continued has an id ([`marks`]), which is a place in the outputs ([`position`]).
//! - A stream keeps its events ([`held`]) until `resume_ttl_secs` after its end. When its last
//!   connection is cut, its requests are aborted, unless it asked to go on (`X-Detach-Grace`).
//! - A request with an `Idempotency-Key` gets the same answer again ([`whole`]).
//! - With a journal, the exchange is recorded ([`exchange`], [`keeping`]). Another process gives
//!   its accepted requests to the engine again ([`revive`]). When the client asks, it repeats the
//!   exchange over their outputs and leaves out the events that the client has ([`dormant`]).
//!   Requests that may have killed the process are started with care ([`trial`]). The answers of a
//!   process that ends while this one serves are continued then ([`takeover`]).

mod dormant;
mod exchange;
mod held;
mod keeping;
mod kept;
mod marks;
mod position;
mod prompt;
mod rendering;
mod revive;
mod route;
mod stream;
mod takeover;
mod ticket;
mod transfer;
mod trial;
mod whole;

use std::{sync::Arc, time::Duration};

use axum::response::Response;

pub(super) use self::held::Event;
use self::kept::Kept;
pub(super) use self::position::escaped as answer_id;
pub(super) use self::{
    exchange::Mode, exchange::Served, kept::KeptAnswers, marks::Marks, position::Batch,
    position::Position, prompt::AdoptedPrompt, rendering::Rendering, revive::revive,
    route::continue_stream, stream::KeptStream, takeover::take_over, ticket::Entry,
    ticket::IDEMPOTENCY_KEY, ticket::LAST_EVENT_ID, ticket::Prompts, ticket::Ticket,
    transfer::AnswerPart,
};
use crate::{
    api::Tenant,
    server::{http::error::ApiError, state::AppState},
};

/// Returns the stream of an event, escaped, if `last_event` is the id of one.
pub(super) fn stream_of(last_event: &str) -> Option<String> {
    position::split(last_event).ok().map(|(stream, _)| stream.to_owned())
}

/// Time between two looks for answers that are kept no longer.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Removes answers that are kept no longer, from now on. Never completes.
pub(super) async fn sweep(kept: Arc<KeptAnswers>, ttl_secs: f64) {
    let ttl = Duration::try_from_secs_f64(ttl_secs).unwrap_or(Duration::MAX);
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        kept.sweep(ttl);
    }
}

/// Answers a request that its client sends again with the last event that it has.
pub(super) async fn resume(
    state: &AppState,
    owner: Option<Tenant>,
    ticket: &Ticket,
    stream: &str,
    after: &Position,
) -> Result<Response, ApiError> {
    let kept = state.kept.get(owner, stream)?;
    let hash = match &kept {
        Kept::Stream(held) => held.request_hash,
        Kept::Whole(whole) => whole.request_hash,
        Kept::Dormant(dormant) => dormant.request_hash,
    };
    if hash != ticket.request_hash() {
        return Err(ApiError::other_stream());
    }
    answer(kept, Some(after.clone())).await
}

async fn answer(kept: Kept, after: Option<Position>) -> Result<Response, ApiError> {
    match kept {
        Kept::Stream(held) => {
            let after = after.map(|position| position.to_string());
            held.follow(after.as_deref())
        }
        Kept::Whole(whole) => whole.answer().await,
        Kept::Dormant(dormant) => dormant.wake(&dormant.home()?, after).await,
    }
}

/// Answers a request with an `Idempotency-Key`: makes its answer, or gives the one that an equal
/// request got.
pub(super) async fn once(
    state: &AppState,
    owner: Option<Tenant>,
    key: &str,
    ticket: Ticket,
    work: impl Future<Output = Result<Response, ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let (whole, is_new) = state.kept.enter_key(owner, key, ticket.request_hash())?;
    match is_new {
        true => whole::make(state, whole, ticket, work).await,
        false => whole.answer().await,
    }
}

/// Completes once all that was recorded for a kept answer is durable. All that the journal needs of
/// an answer of an earlier process is there.
pub(super) async fn durable(state: &AppState, ticket: &Ticket) -> Result<(), ApiError> {
    let name = ticket.answer_id().filter(|_| !ticket.is_repeated());
    match (state.engine.journal(), name) {
        (Some(journal), Some(name)) => Ok(journal.durable_answer(&name).await?),
        _ => Ok(()),
    }
}
