//! An answer of an earlier process that its client has not asked for yet. Its requests are computed
//! already, and their outputs wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    Rendering,
    keeping::Keeping,
    position::Position,
    prompt::{Prompt, check_place},
    ticket::{Ticket, request_hash},
};
use crate::{
    api::{RequestError, RequestId, Tenant},
    server::{generating, http::error::ApiError, messages, state::AppState},
};

/// Time after which a client may ask again for an answer that cannot be written now.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One answer that waits to be written again.
pub(in crate::server) struct Dormant {
    /// Hash of the route and the body.
    pub(super) request_hash: [u8; 32],
    /// The state with its model. Another model may be served when its client asks. `None` once the
    /// engine has ended.
    home: Mutex<Option<AppState>>,
    owner: Option<Tenant>,
    since: Instant,
    /// The requests that were accepted for it.
    requests: Vec<RequestId>,
    asleep: Mutex<Option<Asleep>>,
    /// Whether the engine must not get its requests yet.
    is_held_back: AtomicBool,
}

/// The parts of an answer that is not being written.
struct Asleep {
    keeping: Keeping,
    /// `None` if the engine gets its requests anew.
    prompts: Option<Vec<Prompt>>,
}

impl Dormant {
    pub(super) fn new(
        home: AppState,
        owner: Option<Tenant>,
        keeping: Keeping,
        prompts: Option<Vec<Prompt>>,
    ) -> Self {
        let exchange = keeping.exchange();
        let request_hash = request_hash(&exchange.route, &exchange.body);
        let requests = prompts.iter().flatten().flat_map(Prompt::ids).collect();
        let asleep = Mutex::new(Some(Asleep { keeping, prompts }));
        let is_held_back = AtomicBool::new(false);
        let (home, since) = (Mutex::new(Some(home)), Instant::now());
        Self { request_hash, home, owner, since, requests, asleep, is_held_back }
    }

    /// Returns the state with its model.
    ///
    /// # Errors
    /// 503 if the engine has ended. A process with the model can continue it.
    pub(super) fn home(&self) -> Result<AppState, ApiError> {
        let message = "the model of this stream is no longer loaded: another one has its place";
        let gone = || ApiError::unavailable(message.to_owned(), RETRY_AFTER);
        self.home.lock().clone().ok_or_else(gone)
    }

    /// Gives the state with its model up, if it is the one with this `rendering`.
    pub(super) fn lose_model(&self, rendering: &Arc<Rendering>) -> Option<AppState> {
        self.home.lock().take_if(|state| Arc::ptr_eq(&state.rendering, rendering))
    }

    /// Returns whether it has waited for longer than `ttl`.
    pub(super) fn has_expired(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= ttl
    }

    /// Keeps its requests from the engine until [`Self::begin`].
    pub(super) fn hold_back(&self) {
        self.is_held_back.store(true, Ordering::Release);
    }

    /// Gives its requests to the engine. They are computed before a client asks.
    ///
    /// # Errors
    /// As [`Prompt::begin`]. Its client lets it begin then.
    pub(super) async fn begin(&self, state: &AppState) -> Result<(), RequestError> {
        self.is_held_back.store(false, Ordering::Release);
        let Some(asleep) = self.asleep.lock().take() else { return Ok(()) };
        let mut taken = Taken { dormant: self, asleep: Some(asleep) };
        taken.begin(state).await
    }

    /// Returns whether its parts are there, so that it can be written.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.lock().is_some()
    }

    /// Returns whether one of its requests is being computed.
    pub(super) fn is_live(&self, state: &AppState) -> bool {
        self.requests.iter().any(|&request| state.engine.is_live(request))
    }

    /// Writes the answer again, from the event after `after` on: repeats its exchange, over the
    /// requests that were accepted then. The key of its client is not needed again. The work goes
    /// on though the client leaves, so that it can ask again.
    ///
    /// # Errors
    /// 400 if there is no such event. 503 if it is being written already, must wait, or the engine
    /// does not answer. Other errors are those of its route. The answer stays after all of them.
    pub(super) async fn wake(
        self: &Arc<Self>,
        state: &AppState,
        after: Option<Position>,
    ) -> Result<Response, ApiError> {
        let (dormant, state) = (Arc::clone(self), state.clone());
        let written = tokio::spawn(async move { dormant.write(&state, after).await });
        written.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
    }

    async fn write(&self, state: &AppState, after: Option<Position>) -> Result<Response, ApiError> {
        let (ticket, request) = self.exchange(state, after).await?;
        let mut unwritten = self.until_written(&ticket);
        let response = self.repeat(state, ticket.clone(), request).await?;
        unwritten.is_written = true;
        Ok(response)
    }

    /// Returns a guard that puts the answer's parts back, unless the answer was written.
    pub(super) fn until_written(&self, ticket: &Ticket) -> Unwritten<'_> {
        Unwritten { dormant: self, ticket: ticket.clone(), is_written: false }
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
        let asleep = self.take(after.as_ref())?;
        let mut taken = Taken { dormant: self, asleep: Some(asleep) };
        taken.begin(state).await?;
        let request = taken.request()?;
        let asleep = taken.asleep.take().ok_or_else(|| ApiError::internal("no answer is there"))?;
        Ok((Ticket::again(asleep.keeping, asleep.prompts, after), request))
    }

    fn take(&self, after: Option<&Position>) -> Result<Asleep, ApiError> {
        let unavailable = |message: &str| ApiError::unavailable(message.to_owned(), RETRY_AFTER);
        if self.is_held_back.load(Ordering::Acquire) {
            return Err(unavailable(
                "the process died while it computed this answer and others; they are computed \
                 again a few at a time, and this one waits; ask again",
            ));
        }
        let mut place = self.asleep.lock();
        let asleep = place.as_ref();
        let asleep =
            asleep.ok_or_else(|| unavailable("the stream is being continued; ask again"))?;
        if let (Some(prompts), Some(after)) = (&asleep.prompts, after) {
            check_place(prompts, after)?;
        }
        place.take().ok_or_else(|| ApiError::internal("no answer is there"))
    }
}

/// The parts of an answer while its requests begin. A drop puts them back.
struct Taken<'a> {
    dormant: &'a Dormant,
    asleep: Option<Asleep>,
}

impl Taken<'_> {
    async fn begin(&mut self, state: &AppState) -> Result<(), RequestError> {
        let Some(asleep) = &mut self.asleep else { return Ok(()) };
        for prompt in asleep.prompts.iter_mut().flatten() {
            prompt.begin(state).await?;
        }
        Ok(())
    }

    /// Returns the request as its client sent it.
    fn request(&self) -> Result<Request<Body>, ApiError> {
        let asleep =
            self.asleep.as_ref().ok_or_else(|| ApiError::internal("no answer is there"))?;
        let exchange = asleep.keeping.exchange();
        let mut request = Request::post(&exchange.route).header(CONTENT_TYPE, "application/json");
        for (name, value) in &exchange.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(exchange.body.clone()));
        request.map_err(|error| ApiError::internal(error.to_string()))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(asleep) = self.asleep.take() {
            *self.dormant.asleep.lock() = Some(asleep);
        }
    }
}

/// Puts the parts of an answer back that was not written, as far as its route has not used them.
pub(super) struct Unwritten<'a> {
    dormant: &'a Dormant,
    ticket: Ticket,
    pub(super) is_written: bool,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        if !self.is_written
            && let Some((keeping, prompts)) = self.ticket.take_back()
        {
            *self.dormant.asleep.lock() = Some(Asleep { keeping, prompts });
        }
    }
}
