//! The HTTP surface: OpenAI's API with vLLM's extensions.
//!
//! A handler turns a request into what the engine takes, hands it over, and writes what comes
//! back; whatever the engine decides is not decided here. A client that leaves drops its handler
//! and with it the output streams, which aborts the request.

mod admin;
mod answer;
mod auth;
mod caller;
#[cfg(feature = "chaos")]
mod chaos;
mod chat;
mod choices;
mod completions;
mod error;
mod extract;
mod fields;
mod health;
mod in_process;
mod invocations;
mod later;
mod logprobs;
mod metrics;
mod models;
mod open_requests;
mod request_id;
mod request_log;
mod request_metrics;
mod responses;
mod sampling;
mod sse;
mod stalled_io;
mod state;
mod stream;
mod structured_outputs;
#[cfg(test)]
mod test_codec;
mod token_names;
mod tokenize;
mod tokenizer_info;
mod turn;
mod usage;

use std::{io, time::Duration};

use axum::{
    Router,
    http::{HeaderValue, Method, header},
    middleware::from_fn_with_state,
    routing::{get, post},
    serve::ListenerExt,
};
use metrics_exporter_prometheus::PrometheusHandle;
use playhouse_actors::shell::Health;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::cors::{AllowOrigin, CorsLayer};

pub use self::in_process::{InProcess, InProcessAnswer};
use self::{error::ApiError, stalled_io::ImpatientListener, state::AppState};
/// What an operator can set about the HTTP surface.
pub use crate::config::ServerSettings as ServerConfig;
use crate::{config::InvalidSetting, engine::Engine, parsers::UnknownParser};

/// How long clients of an engine that died may take to hear of it.
const DEAD_DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Why the server could not run. The operator must act.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --host or --port")]
    Bind {
        /// Host and port.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// An origin in `allowed_origins` is no header value.
    #[error("allowed_origins: {0:?} is no origin; give one like \"https://example.org\", or \"*\"")]
    Origin(String),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A parser is not known by its name.
    #[error(transparent)]
    Parser(#[from] UnknownParser),
    /// Accepting connections failed.
    #[error("the server failed: {0}")]
    Io(#[from] io::Error),
}

/// How a server that was told to stop has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Every request was answered to its end.
    Complete,
    /// Some were not by the end of `shutdown_timeout_secs`.
    CutOff {
        /// How many.
        requests: usize,
    },
}

/// Serves `engine` over HTTP until `shutdown` completes, and then until the streams in flight have
/// ended or `shutdown_timeout_secs` have passed. The engine itself is left running.
///
/// # Errors
/// [`ServerError`] if the address is taken or the configuration cannot be used.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) -> Result<Drain, ServerError> {
    let listener = TcpListener::bind((config.host.as_str(), config.port)).await;
    let listener = listener.map_err(|source| {
        let address = format!("{}:{}", config.host, config.port);
        ServerError::Bind { address, source }
    })?;
    serve_on(listener, engine, config, metrics, shutdown).await
}

/// [`serve`] on a listener of the caller's.
///
/// # Errors
/// [`ServerError`] if the configuration cannot be used or accepting connections fails.
pub async fn serve_on(
    listener: TcpListener,
    engine: Engine,
    config: ServerConfig,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) -> Result<Drain, ServerError> {
    config.validate()?;
    let limit = Duration::from_secs(config.shutdown_timeout_secs);
    let write_limit = Duration::from_secs(config.write_timeout_secs);
    let state = AppState::new(engine.clone(), config, metrics)?;
    let responses = state.responses.clone();
    let app = router(state)?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    // Tokens are small packets; they must not wait to be joined.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
    });
    let listener = ImpatientListener::new(listener, write_limit);
    let stop = CancellationToken::new();
    let server = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let mut server = std::pin::pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return Ok(ended.map(|()| Drain::Complete)?),
        () = shutdown => {}
    }
    tracing::info!(open_requests = engine.open_requests(), "draining");
    engine.begin_drain();
    stop.cancel();
    // Some responses are made without a connection.
    let server = async {
        let ended = server.await;
        responses.drained().await;
        ended
    };
    // Nothing ends any more in an engine that is dead.
    let limit = if engine.health() == Health::Dead { limit.min(DEAD_DRAIN_LIMIT) } else { limit };
    match tokio::time::timeout(limit, server).await {
        Ok(ended) => ended?,
        Err(_) => match engine.open_requests() {
            0 => tracing::info!("all requests have ended; idle connections are closed"),
            requests => return Ok(Drain::CutOff { requests }),
        },
    }
    Ok(Drain::Complete)
}

fn router(state: AppState) -> Result<Router, ServerError> {
    let cors = cors(&state.config.allowed_origins)?;
    let router = Router::new()
        .route("/v1/completions", post(completions::create))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/chat/completions/batch", post(chat::create_batch))
        .route("/invocations", post(invocations::invoke))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/models", get(models::list))
        .route("/health", get(health::health))
        .route("/ping", get(health::health).post(health::health))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/version", get(health::version))
        .route("/load", get(health::load))
        .route("/metrics", get(metrics::render))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .merge(admin::routes(&state));
    let router = match state.config.enable_tokenizer_info_endpoint {
        true => router.route("/tokenizer_info", get(tokenizer_info::tokenizer_info)),
        false => router,
    };
    #[cfg(feature = "chaos")]
    let router = router.merge(chaos::routes());
    let router = router
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || ApiError::not_found())
        .layer(from_fn_with_state(state.clone(), auth::authenticate))
        .layer(from_fn_with_state(state.clone(), request_id::echo))
        .with_state(state);
    Ok(match cors {
        Some(cors) => router.layer(cors),
        None => router,
    })
}

/// What browsers are told; nothing unless the operator names origins.
fn cors(origins: &[String]) -> Result<Option<CorsLayer>, ServerError> {
    if origins.is_empty() {
        return Ok(None);
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let parse = |origin: &String| {
            HeaderValue::from_str(origin).map_err(|_| ServerError::Origin(origin.clone()))
        };
        AllowOrigin::list(origins.iter().map(parse).collect::<Result<Vec<_>, _>>()?)
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE]);
    Ok(Some(layer))
}
