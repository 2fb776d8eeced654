//! From the request to the response.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use futures_util::stream::unfold;

use super::{
    background,
    events::{Event, Frames},
    follow::follow,
    ids,
    items::Items,
    protocol::{Plan, ResponsesRequest},
    response::Asked,
    run::Run,
    store::{Owner, ResponseStore},
    stored::{Stored, Turn, stored_bytes},
    weight::Weight,
};
use crate::server::{
    generate::{choices::Choices, request_log::RequestLog},
    http::{
        caller::Caller,
        error::ApiError,
        extract::JsonBody,
        request_id::{chosen, response_id},
        sse,
    },
    memory::{RequestMemory, json::json_bytes},
    state::AppState,
};

/// Events of one response that show it in full.
const EVENTS_IN_FULL: usize = 3;

/// `POST /v1/responses`
pub(in crate::server) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let owner = caller.tenant;
    let plan = request.plan(&state, owner, &memory).await?;
    let name = request.request_id().unwrap_or(ids::name_of(&plan.response.id));
    let log_id = response_id("resp", &headers, Some(name));
    let mut log = RequestLog::new(log_id.clone(), "/v1/responses", owner);
    let Plan { request, style, writer, logprobs, response, context, is_streamed } = plan;
    let mut keeper = Keeper::new(state.responses.clone(), owner, context, memory.clone());
    let reserved = keeper.reserve(&response.asked, is_streamed).await;
    reserved.inspect_err(|_| log.end("refused"))?;
    let names = [response.id.as_str(), chosen(&log_id)];
    let submitted = Choices::submit(&state, &names, caller, memory, vec![request]).await;
    let choices = submitted.inspect_err(|_| log.end("refused"))?;
    let reader = style.reader(&response.id, 0, choices.prompt_of(0));
    let (finish, error) = (None, None);
    let mut run = Run { choices, reader, writer, logprobs, response, log, finish, error };
    if run.response.asked.background {
        let stored = keeper.keep(&run, is_streamed);
        background::start(&state.responses, run, stored.clone());
        if is_streamed {
            return Ok(follow(&stored, 0));
        }
        return Ok(Json(stored.response()).into_response());
    }
    if is_streamed {
        return Ok(stream(run, keeper));
    }
    while run.next().await.is_some() {}
    if run.error.is_none() && run.response.asked.store {
        keeper.keep(&run, false);
    }
    Ok(Json(run.outcome()?).into_response())
}

/// Puts responses into the store.
struct Keeper {
    store: Arc<ResponseStore>,
    owner: Owner,
    context: Context,
    memory: RequestMemory,
    /// There for a response that goes on without its client.
    weight: Option<Weight>,
}

/// What a response was made of.
pub(super) struct Context {
    /// The turns before it.
    pub(super) history: Vec<Arc<Turn>>,
    pub(super) input: Arc<Items>,
}

impl Keeper {
    fn new(
        store: Arc<ResponseStore>,
        owner: Owner,
        context: Context,
        memory: RequestMemory,
    ) -> Self {
        Self { store, owner, context, memory, weight: None }
    }

    /// Takes the memory of events that tell what was asked for, and the store's room for a response
    /// that is kept from its beginning.
    async fn reserve(&mut self, asked: &Asked, is_streamed: bool) -> Result<(), ApiError> {
        if is_streamed {
            self.memory.grow(json_bytes(asked).saturating_mul(EVENTS_IN_FULL)).await?;
        }
        if asked.background {
            let bytes = stored_bytes(asked, &self.context.history, &self.context.input);
            self.weight = Some(self.store.reserve(bytes, self.memory.lease())?);
        }
        Ok(())
    }

    /// With its events, if they are to be had again.
    fn keep(self, run: &Run, with_events: bool) -> Arc<Stored> {
        let Context { history, input } = self.context;
        let weight = self.weight.unwrap_or_else(|| self.store.weight());
        let (response, request) = (run.response.clone(), Some(self.memory.lease()));
        let stored = Stored::new(response, with_events, history, input, weight, request);
        let stored = Arc::new(stored);
        self.store.insert(self.owner, stored.clone());
        stored
    }
}

/// A response that is told as it is made. Its client's leaving drops it.
fn stream(mut run: Run, keeper: Keeper) -> Response {
    let mut frames = Frames::default();
    let events: VecDeque<Bytes> = write(&mut frames, &run.begin());
    let keeper = run.response.asked.store.then_some(keeper);
    sse::response(unfold(
        (run, keeper, frames, events),
        |(mut run, mut keeper, mut frames, mut events)| async move {
            while events.is_empty() {
                events = write(&mut frames, &run.next().await?);
                // Whoever hears of its end can go on from it.
                if run.response.status.is_over() {
                    keeper.take().map(|keeper| keeper.keep(&run, false));
                }
            }
            let event = events.pop_front()?;
            Some((event, (run, keeper, frames, events)))
        },
    ))
}

fn write(frames: &mut Frames, events: &[Event]) -> VecDeque<Bytes> {
    events.iter().map(|event| frames.write(event)).collect()
}
