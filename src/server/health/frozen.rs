//! The answers of a server while the threads of its runtime are frozen. These routes run on the
//! thread of the accept loop. They ask the engine nothing, because its locks may be held.

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use tower::util::MapRequest;

use super::{metrics, probes};
use crate::{
    api::RequestError,
    server::{
        http::{auth, draining, error::ApiError, root_path},
        state::AppState,
    },
};

/// Returns routes for probes and metrics, and 503 for all other paths.
pub(in crate::server) fn router(state: AppState) -> Router {
    let router = Router::new()
        .route("/health", get(probes::frozen))
        .route("/ping", get(probes::frozen).post(probes::frozen))
        .route("/readyz", get(probes::frozen))
        .route("/livez", get(probes::frozen_livez))
        .route("/version", get(probes::version))
        .route("/metrics", get(metrics::render))
        .fallback(async || {
            let reason = "the server's threads are frozen".to_owned();
            ApiError::from(RequestError::Unavailable(reason))
        })
        .layer(from_fn_with_state(state.clone(), auth::authenticate))
        .layer(from_fn(connect_anew));
    let root_path = state.config.root_path.clone();
    let prefixed =
        MapRequest::new(router.with_state(state), move |r| root_path::strip(&root_path, r));
    Router::new().fallback_service(prefixed)
}

/// Middleware: closes the connection, because the next request may find the runtime at work.
async fn connect_anew(request: Request, next: Next) -> Response {
    let version = request.version();
    draining::send_away(version, next.run(request).await.into_response())
}
