//! The side of the process that ends: it answers the requests that the other process passes on.

use std::{future::pending, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderName, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    Link,
    predecessor::{KEYS, OWNER, RESPONSE, RESPONSES},
    remainder::{self, Estate},
};
use crate::{
    api::Tenant,
    server::{http::listen::Listening, resume::IDEMPOTENCY_KEY},
};

/// The time that the other process has to take what this one leaves.
const REMAINDER_LIMIT: Duration = Duration::from_secs(10);
/// The time in which it closes the connection then.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The other process, as long as this one lives.
pub(in crate::server) struct Successor {
    /// The requests that it has passed on.
    requests: TaskTracker,
    remainder: oneshot::Sender<Vec<Bytes>>,
    /// Completes when the remainder was taken.
    taken: oneshot::Receiver<()>,
    serving: JoinHandle<()>,
}

/// The state of the routes that only the other process has.
#[derive(Clone)]
struct Routes {
    estate: Estate,
    remainder: Arc<Mutex<Option<Remainder>>>,
}

struct Remainder {
    content: oneshot::Receiver<Vec<Bytes>>,
    taken: oneshot::Sender<()>,
}

impl Successor {
    /// Answers the other process on `link` by the server's own routes `app`.
    pub(in crate::server) fn begin(
        link: Link,
        listening: &Listening,
        app: Router,
        estate: Estate,
    ) -> Self {
        let requests = TaskTracker::new();
        let (sender, content) = oneshot::channel();
        let (taken_sender, taken) = oneshot::channel();
        let remainder = Arc::new(Mutex::new(Some(Remainder { content, taken: taken_sender })));
        let counted = app.layer(from_fn_with_state(requests.clone(), count));
        let routes = Router::new()
            .route(remainder::ROUTE, get(send_remainder))
            .route(KEYS, get(knows_key))
            .route(RESPONSES, get(stored_response))
            .with_state(Routes { estate, remainder })
            .fallback_service(counted);
        #[cfg(unix)]
        let serving = tokio::spawn(listening.serve_process(link, routes));
        #[cfg(not(unix))]
        let serving = match link {};
        Self { requests, remainder: sender, taken, serving }
    }

    /// Completes when the requests that it has passed on have ended.
    pub(in crate::server) async fn drained(&self) {
        self.requests.close();
        self.requests.wait().await;
    }

    /// Sends the content that stays, and closes the connection.
    pub(in crate::server) async fn leave(self, content: Vec<Bytes>) {
        let Self { remainder, taken, mut serving, .. } = self;
        // Without a receiver, the other process has ended.
        let _ = remainder.send(content);
        tokio::select! {
            _ = timeout(REMAINDER_LIMIT, taken) => {}
            _ = &mut serving => return,
        }
        let closed = timeout(CLOSE_LIMIT, &mut serving).await;
        if closed.is_err() {
            serving.abort();
        }
    }
}

/// Middleware: counts a request until its answer is sent.
async fn count(State(requests): State<TaskTracker>, request: Request, next: Next) -> Response {
    let token = requests.token();
    let response = next.run(request).await;
    response.map(|body| {
        let counted = body.into_data_stream().inspect(move |_| {
            let _ = &token;
        });
        Body::from_stream(counted)
    })
}

/// Answers at the end of this process, with its content.
async fn send_remainder(State(routes): State<Routes>) -> Response {
    let Some(Remainder { content, taken }) = routes.remainder.lock().take() else {
        return StatusCode::GONE.into_response();
    };
    let Ok(content) = content.await else { return StatusCode::GONE.into_response() };
    // Dropped with the last part.
    let taken = Taken(Some(taken));
    let parts = stream::iter(content).map(move |part| {
        let _ = &taken;
        Ok::<_, std::convert::Infallible>(part)
    });
    Body::from_stream(parts).into_response()
}

struct Taken(Option<oneshot::Sender<()>>);

impl Drop for Taken {
    fn drop(&mut self) {
        // The receiver may have waited long enough.
        let _ = self.0.take().map(|taken| taken.send(()));
    }
}

/// Returns the owner that the other process names. `Err` if its key does not open this server.
fn owner(estate: &Estate, request: &Request) -> Result<Option<Tenant>, StatusCode> {
    let Some(name) = request.headers().get(OWNER) else {
        return if estate.keys.are_needed() { Err(StatusCode::NOT_FOUND) } else { Ok(None) };
    };
    let name = name.to_str().ok().and_then(|name| name.parse::<u64>().ok());
    name.and_then(|name| estate.keys.named(name)).map(Some).ok_or(StatusCode::NOT_FOUND)
}

fn header<'r>(request: &'r Request, name: &HeaderName) -> Result<&'r str, StatusCode> {
    let value = request.headers().get(name).and_then(|value| value.to_str().ok());
    value.map(str::trim).ok_or(StatusCode::BAD_REQUEST)
}

/// Answers whether this process has an answer by this `Idempotency-Key`.
async fn knows_key(
    State(Routes { estate, .. }): State<Routes>,
    request: Request,
) -> Result<(), StatusCode> {
    let owner = owner(&estate, &request)?;
    match estate.kept.has_key(owner, header(&request, &IDEMPOTENCY_KEY)?) {
        true => Ok(()),
        false => Err(StatusCode::NOT_FOUND),
    }
}

/// Returns a stored response as data, with the turns that it continues.
async fn stored_response(
    State(Routes { estate, .. }): State<Routes>,
    request: Request,
) -> Result<Vec<u8>, StatusCode> {
    let owner = owner(&estate, &request)?;
    let stored = estate
        .responses
        .get(owner, header(&request, &RESPONSE)?)
        .map_err(|_| StatusCode::NOT_FOUND)?;
    if !stored.is_over() {
        return Err(StatusCode::CONFLICT);
    }
    estate.responses.parts_of(owner, &stored, &estate.keys).map_err(|error| {
        tracing::warn!(%error, "a stored response cannot be handed over");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

/// Completes never, or with the connection to the process that takes over.
pub(in crate::server) async fn taken_over(receiver: Option<oneshot::Receiver<Link>>) -> Link {
    match receiver {
        Some(receiver) => match receiver.await {
            Ok(link) => link,
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}
