//! An answer of an earlier process that its client has not asked for yet. Its requests are computed
//! already, and their outputs wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Request, header::CONTENT_TYPE},
    middleware::from_fn,
    response::Response,
};
use parking_lot::Mutex;
use tower::ServiceExt;

use super::{
    keeping::Keeping,
    position::Position,
    ticket::{Prompts, Ticket, request_hash},
};
use crate::{
    api::{ChoiceStream, EngineRequest, RequestError, Tenant},
    server::{generating, http::error::ApiError, messages, state::AppState},
};

/// One answer that waits to be written again.
pub(in crate::server) struct Dormant {
    /// Hash of the route and the body.
    pub(super) request_hash: [u8; 32],
    owner: Option<Tenant>,
    since: Instant,
    asleep: Mutex<Option<Asleep>>,
}

/// The parts of an answer that is not being written.
struct Asleep {
    keeping: Keeping,
    /// `None` if the engine gets its requests anew.
    prompts: Option<Vec<Prompt>>,
}

/// One prompt of an answer.
pub(super) struct Prompt {
    requests: Vec<Arc<EngineRequest>>,
    /// Its outputs, if the engine has its requests.
    choices: Option<Vec<ChoiceStream>>,
}

impl Prompt {
    pub(super) fn new(requests: Vec<Arc<EngineRequest>>) -> Self {
        Self { requests, choices: None }
    }

    /// Gives the requests to the engine, unless it has them.
    pub(super) async fn begin(&mut self, state: &AppState) -> Result<(), RequestError> {
        if self.choices.is_none() {
            self.choices = Some(state.engine.restore(self.requests.clone()).await?);
        }
        Ok(())
    }

    fn into_streams(self) -> (Arc<[u32]>, Vec<ChoiceStream>) {
        let prompt = self.requests.first().map(|request| Arc::clone(&request.prompt_token_ids));
        (prompt.unwrap_or_default(), self.choices.unwrap_or_default())
    }
}

impl Dormant {
    pub(super) fn new(
        owner: Option<Tenant>,
        keeping: Keeping,
        prompts: Option<Vec<Prompt>>,
    ) -> Self {
        let exchange = keeping.exchange();
        let request_hash = request_hash(&exchange.route, &exchange.body);
        let asleep = Mutex::new(Some(Asleep { keeping, prompts }));
        Self { request_hash, owner, since: Instant::now(), asleep }
    }

    /// Returns whether it has waited for longer than `ttl`.
    pub(super) fn has_expired(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= ttl
    }

    /// Writes the answer again, from the event after `after` on: repeats its exchange, over the
    /// requests that were accepted then. The key of its client is not needed again.
    ///
    /// # Errors
    /// 503 if it is being written already, or the engine does not answer.
    pub(super) async fn wake(
        &self,
        state: &AppState,
        after: Option<Position>,
    ) -> Result<Response, ApiError> {
        let (ticket, request) = self.exchange(state, after).await?;
        self.repeat(state, ticket, request).await
    }

    /// Lets the routes answer the exchange once more.
    pub(super) fn repeat(
        &self,
        state: &AppState,
        ticket: Ticket,
        mut request: Request<Body>,
    ) -> impl Future<Output = Result<Response, ApiError>> + Send + 'static {
        request.extensions_mut().insert(ticket);
        if let Some(identity) = self.owner.and_then(|tenant| state.keys.identity_of(tenant)) {
            request.extensions_mut().insert(identity);
        }
        let routes: Router = generating().with_state(state.clone());
        let routes = routes.layer(from_fn(messages::in_own_shape));
        async move {
            match routes.oneshot(request).await {
                Ok(mut response) => match response.extensions_mut().remove::<ApiError>() {
                    Some(error) => Err(error),
                    None => Ok(response),
                },
                Err(never) => match never {},
            }
        }
    }

    /// Takes the answer's parts. Returns its ticket and its request.
    pub(super) async fn exchange(
        &self,
        state: &AppState,
        after: Option<Position>,
    ) -> Result<(Ticket, Request<Body>), ApiError> {
        let asleep = self.asleep.lock().take();
        let Asleep { keeping, prompts } = asleep.ok_or_else(|| {
            let message = "the stream is being continued; ask again".to_owned();
            ApiError::unavailable(message, Duration::from_secs(1))
        })?;
        let mut adopted: Option<Prompts> = None;
        for mut prompt in prompts.into_iter().flatten() {
            prompt.begin(state).await?;
            adopted.get_or_insert_default().push(prompt.into_streams());
        }
        let exchange = keeping.exchange();
        let mut request = Request::post(&exchange.route).header(CONTENT_TYPE, "application/json");
        for (name, value) in &exchange.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(exchange.body.clone()));
        let request = request.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok((Ticket::again(keeping, adopted, after), request))
    }
}
