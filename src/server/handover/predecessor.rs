//! The side of the process that serves now: it passes requests on to the process before, as far as
//! only that one can answer them.

use std::{sync::Arc, time::Duration};

use axum::{
    RequestExt,
    body::Body,
    extract::{MatchedPath, Path, Request, State},
    http::{
        self, HeaderMap, HeaderName, Method, StatusCode, Version,
        header::{
            CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, ORIGIN, TE, TRANSFER_ENCODING,
            UPGRADE,
        },
        request::Parts,
        uri::PathAndQuery,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use super::{
    Link,
    remainder::{self, Estate, Inherited},
};
use crate::{
    api::Tenant,
    server::{
        http::{auth::Identity, error::ApiError},
        resume::{IDEMPOTENCY_KEY, LAST_EVENT_ID, answer_id, stream_of},
        state::AppState,
    },
};

/// The routes that only the other process has.
pub(super) const KEYS: &str = "/handover/key";
pub(super) const RESPONSES: &str = "/handover/response";
/// Names the owner of an answer to the process before.
pub(super) const OWNER: HeaderName = HeaderName::from_static("x-playhouse-owner");
/// Names a stored response.
pub(super) const RESPONSE: HeaderName = HeaderName::from_static("x-playhouse-response");
/// Longest wait for the takeover from a process that has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a process that refuses requests ends.
const END_PATIENCE: Duration = Duration::from_millis(500);
/// Time after which a client may ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Unread bytes of one answer that is passed on, and of all of them.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Headers that are not passed on: those about a connection, and the origin, which this process
/// answers for.
const OF_CONNECTIONS: [HeaderName; 8] = [
    CONNECTION,
    HOST,
    ORIGIN,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The process before an upgrade.
pub(in crate::server) struct Predecessor {
    phase: watch::Sender<Phase>,
    inherited: Mutex<Inherited>,
}

#[derive(Clone)]
enum Phase {
    /// This process has not reported yet that it serves.
    Connecting,
    Serves(SendRequest<Body>),
    /// It has ended, and its answers are not here yet.
    Ended,
    /// Its answers are here.
    Gone,
}

impl Predecessor {
    pub(in crate::server) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Connecting), inherited: Mutex::default() }
    }

    /// Follows the process before to its end.
    pub(in crate::server) async fn follow(
        self: Arc<Self>,
        link: oneshot::Receiver<Link>,
        estate: Estate,
    ) {
        if let Ok(link) = link.await
            && let Err(error) = self.speak(link, &estate).await
        {
            tracing::warn!(error, "the process before has ended without its last content");
        }
        self.phase.send_replace(Phase::Ended);
    }

    #[cfg(unix)]
    async fn speak(&self, link: Link, estate: &Estate) -> Result<(), String> {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let shaken = http.handshake(TokioIo::new(link)).await;
        let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        self.phase.send_replace(Phase::Serves(sender.clone()));
        let asked = request(remainder::ROUTE).body(Body::empty());
        let asked = asked.map_err(|error| error.to_string())?;
        let response = sender.send_request(asked).await.map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(response.status().to_string());
        }
        let mut inherited = Inherited::default();
        let body = Body::new(response.into_body());
        let received = remainder::receive(body, estate, &mut inherited).await;
        *self.inherited.lock() = inherited;
        received.map_err(|error| error.to_string())
    }

    #[cfg(not(unix))]
    async fn speak(&self, link: Link, _: &Estate) -> Result<(), String> {
        match link {}
    }

    /// Completes when the process has ended, and its answers are to be entered.
    pub(in crate::server) async fn ended(&self) {
        let mut phase = self.phase.subscribe();
        let has_ended = phase.wait_for(|phase| matches!(phase, Phase::Ended)).await.is_ok();
        if !has_ended {
            std::future::pending().await
        }
    }

    /// Enters the content that it has left, after its journal was taken over.
    pub(in crate::server) fn enter_remainder(&self, state: &AppState) {
        std::mem::take(&mut *self.inherited.lock()).enter(state);
        self.phase.send_replace(Phase::Gone);
    }

    /// Returns the connection, once there is one. `None` if the process has ended. Its answers are
    /// here then, unless that takes very long.
    async fn reach(&self) -> Option<SendRequest<Body>> {
        let mut phase = self.phase.subscribe();
        let settled = phase.wait_for(|phase| matches!(phase, Phase::Serves(_) | Phase::Gone));
        match timeout(PATIENCE, settled).await.ok()?.ok()?.clone() {
            Phase::Serves(sender) => Some(sender),
            _ => None,
        }
    }

    /// Completes when its answers are here.
    pub(in crate::server) async fn gone(&self) {
        let mut phase = self.phase.subscribe();
        // The sender is this value's own.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Gone)).await;
    }

    /// Does the same, unless that takes very long.
    pub(in crate::server) async fn gone_soon(&self) {
        // The request is answered in any case.
        let _ = timeout(PATIENCE, self.gone()).await;
    }

    /// Waits a moment for the end of the process. Returns whether it has come.
    async fn ends_soon(&self) -> bool {
        let mut phase = self.phase.subscribe();
        let ended = phase.wait_for(|phase| matches!(phase, Phase::Ended | Phase::Gone));
        timeout(END_PATIENCE, ended).await.is_ok()
    }

    /// Returns whether its answers are here.
    pub(in crate::server) fn is_gone(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Gone)
    }

    /// Returns whether the process has an answer by this `Idempotency-Key`.
    async fn knows_key(&self, state: &AppState, owner: Option<Tenant>, key: &str) -> bool {
        let answer = self.ask(state, owner, KEYS, (IDEMPOTENCY_KEY, key)).await;
        answer.is_some_and(|answer| answer.status() == StatusCode::OK)
    }

    /// Fetches a stored response into the store of `state`, with the turns that it continues.
    ///
    /// # Errors
    /// [`StillRuns`] if it is not over.
    pub(in crate::server) async fn fetch_response(
        &self,
        state: &AppState,
        owner: Option<Tenant>,
        id: &str,
    ) -> Result<(), StillRuns> {
        let answer = self.ask(state, owner, RESPONSES, (RESPONSE, id)).await;
        let Some(answer) = answer else { return Ok(()) };
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::CONFLICT => return Err(StillRuns),
            _ => return Ok(()),
        }
        let (body, mut none) = (Body::new(answer.into_body()), Inherited::default());
        let received = remainder::receive(body, &Estate::of(state), &mut none).await;
        if let Err(error) = received {
            tracing::warn!(%error, "a response of the process before is not read");
        }
        Ok(())
    }

    /// Lets the process answer a request for both, which has these headers and this body. Returns
    /// its answer. `None` if it has ended: its requests come here then.
    pub(in crate::server) async fn answer(
        &self,
        path: &str,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Option<Response> {
        let sender = self.reach().await?;
        // They are those of the body as the client sent it.
        [CONTENT_LENGTH, CONTENT_ENCODING].iter().for_each(|name| drop(headers.remove(name)));
        let mut request = Request::builder().method(Method::POST).uri(path).body(()).ok()?;
        *request.headers_mut() = headers;
        send(sender, request.into_parts().0, Body::from(body)).await
    }

    /// Asks the process about a part of this owner. Returns `None` if it has ended: its parts are
    /// here then.
    async fn ask(
        &self,
        state: &AppState,
        owner: Option<Tenant>,
        route: &str,
        (header, value): (HeaderName, &str),
    ) -> Option<hyper::Response<Incoming>> {
        let mut sender = self.reach().await?;
        let mut request = request(route).header(header, value);
        if let Some(name) = owner.and_then(|owner| state.keys.name_of(owner)) {
            request = request.header(OWNER, name);
        }
        let answer = sender.send_request(request.body(Body::empty()).ok()?).await;
        if answer.is_err() {
            self.gone_soon().await;
        }
        answer.ok()
    }
}

/// A stored response is not over yet.
#[derive(Debug)]
pub(in crate::server) struct StillRuns;

/// Returns the beginning of a request on the connection to the other process.
fn request(path_and_query: &str) -> http::request::Builder {
    let uri = format!("http://process-before{path_and_query}");
    Request::builder().uri(uri).version(Version::HTTP_2)
}

/// Something of a client's that may be in the process before.
enum Wanted {
    /// A stream or an answer, by its id.
    Answer(String),
    /// An answer, by its `Idempotency-Key`.
    Key(String),
    Response(String),
}

impl Wanted {
    /// Returns the part that `request` asks for, if it asks for one.
    async fn of(request: &mut Request) -> Option<Self> {
        let route = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        match route.as_str() {
            "/v1/streams/{id}" => Some(Self::Answer(answer_id(&id(request).await?))),
            "/v1/responses/{id}"
            | "/v1/responses/{id}/cancel"
            | "/v1/responses/{id}/input_items" => Some(Self::Response(id(request).await?)),
            _ if *request.method() == Method::POST => {
                let headers = request.headers();
                let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
                let last = text(LAST_EVENT_ID).and_then(stream_of);
                let key = || text(IDEMPOTENCY_KEY).map(str::to_owned).map(Self::Key);
                last.map(Self::Answer).or_else(key)
            }
            _ => None,
        }
    }

    fn is_here(&self, state: &AppState, owner: Option<Tenant>) -> bool {
        match self {
            Self::Answer(id) => state.kept.has(owner, id),
            Self::Key(key) => state.kept.has_key(owner, key),
            Self::Response(id) => state.responses.get(owner, id).is_ok(),
        }
    }
}

async fn id(request: &mut Request) -> Option<String> {
    request.extract_parts::<Path<String>>().await.ok().map(|Path(id)| id)
}

/// Middleware: lets the process before answer what only that one can. It checks the client's key
/// itself.
pub(in crate::server) async fn pass_on(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let predecessor = state.predecessor.as_ref().filter(|predecessor| !predecessor.is_gone());
    let Some(predecessor) = predecessor else { return next.run(request).await };
    let Some(wanted) = Wanted::of(&mut request).await else { return next.run(request).await };
    let owner = request.extensions().get::<Identity>().map(|identity| identity.tenant);
    let is_delete = *request.method() == Method::DELETE;
    let is_here = wanted.is_here(&state, owner);
    // A response that was fetched is in both processes.
    if is_here && !is_delete {
        return next.run(request).await;
    }
    if let Wanted::Key(key) = &wanted
        && !predecessor.knows_key(&state, owner, key).await
    {
        return next.run(request).await;
    }
    let Some(sender) = predecessor.reach().await else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    // These have no body that matters.
    let can_repeat = matches!(wanted, Wanted::Response(_)) || parts.method == Method::GET;
    let again = parts.clone();
    let answer = send(sender, parts, body).await;
    let again = move || next.run(Request::from_parts(again, Body::empty()));
    if is_here {
        return again().await;
    }
    if let Some(answer) = answer {
        let refuses = answer.status() == StatusCode::SERVICE_UNAVAILABLE;
        if !refuses || !predecessor.ends_soon().await {
            return answer;
        }
    }
    if can_repeat {
        predecessor.gone_soon().await;
        return again().await;
    }
    let message = "the process that has this answer has just ended; ask again".to_owned();
    ApiError::unavailable(message, RETRY_AFTER).into_response()
}

/// Returns the answer of the process before. `None` if it has ended.
async fn send(mut sender: SendRequest<Body>, mut parts: Parts, body: Body) -> Option<Response> {
    let path_and_query = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut outgoing = request(path_and_query).method(parts.method).body(body).ok()?;
    OF_CONNECTIONS.iter().for_each(|name| drop(parts.headers.remove(name)));
    *outgoing.headers_mut() = parts.headers;
    let answer = sender.send_request(outgoing).await.ok()?;
    Some(answer.map(Body::new))
}
