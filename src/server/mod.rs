//! The HTTP surface: OpenAI's API with vLLM's extensions.
//!
//! A handler turns a request into the engine's types, submits it, and writes the outputs. It
//! decides nothing that the engine decides. A client that disconnects drops its handler and with it
//! the output streams, which aborts the request.

mod admin;
mod audio;
mod chaos;
mod chat;
mod check_body;
mod completions;
mod exchange;
mod generate;
mod generative_scoring;
mod handover;
pub(crate) mod health;
mod http;
mod in_process;
mod invocations;
mod lora;
mod media;
mod memory;
mod messages;
mod models;
mod ollama;
mod openapi;
mod other_task;
mod page;
mod pooling;
mod responses;
mod resume;
mod snapshots;
mod state;
mod swap;
mod tokenize;
mod traces;
mod turn;

use std::{io, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{Method, Uri},
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{Instant, timeout_at};
use tower::util::MapRequest;

pub(crate) use self::handover::Handover;
#[cfg(feature = "cli")]
pub(crate) use self::handover::{Link, UpgradeOrder};
#[cfg(feature = "cli")]
pub(crate) use self::http::client::{HttpClient, http_client};
use self::{
    chat::ChatRequest,
    completions::CompletionRequest,
    generate::handler::generate,
    generative_scoring::ScoringRequest,
    handover::{Estate, Predecessor, Successor},
    health::{frozen, http_metrics, metrics, probes},
    http::{
        auth, cors, draining,
        error::ApiError,
        keep_alive,
        listen::{self, Apps, CurrentRoutes, Tls},
        reload, request_id, root_path,
    },
    messages::MessagesRequest,
    responses::ResponsesRequest,
    state::AppState,
    swap::Swaps,
    tokenize::tokenizer_info,
};
pub use self::{
    check_body::{BodyError, ROUTES_WITH_BODY, check_body},
    health::describe_metrics,
    http::{
        auth::KeyFileError,
        listen::{Address, Listener, TlsError},
    },
    in_process::{InProcess, InProcessAnswer},
    swap::ServedEngine,
};
use crate::api::Health;
/// The operator's settings of the HTTP surface.
pub use crate::config::ServerSettings as ServerConfig;
use crate::{config::InvalidSetting, parsers::UnknownParser};

/// Time in which clients of a dead engine must get their errors.
const DEAD_DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// The reason why the server did not start. The operator must act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}; choose another --host, --port or --uds")]
    Bind {
        /// Host and port, or the path of a socket.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file of API keys cannot be used.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// No parser has this name.
    #[error(transparent)]
    Parser(#[from] UnknownParser),
    /// Spans cannot be sent to the collector.
    #[error("otlp_traces_endpoint = {endpoint}: {reason}")]
    Traces {
        /// The collector's URL.
        endpoint: String,
        /// Why not.
        reason: String,
    },
    /// The socket failed.
    #[error("the server failed: {0}")]
    Io(#[from] io::Error),
}

/// The outcome of a server's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Every request was answered completely.
    Complete,
    /// Some requests were still open after `shutdown_timeout_secs`.
    CutOff {
        /// Number of these requests.
        requests: usize,
    },
}

/// Serves `engine` over HTTP until `shutdown` completes. Then goes on until the streams in flight
/// have ended or `shutdown_timeout_secs` have passed. The engine itself keeps running, and its
/// journal is closed. If some files are read again when they change, SIGHUP reads them at once.
///
/// `POST /swap_model` ends the engine that it replaces. A caller that has to end the last engine
/// passes a [`ServedEngine`], and keeps a clone.
///
/// # Errors
/// [`ServerError`] if the address is taken or the configuration cannot be used.
pub async fn serve(
    engine: impl Into<ServedEngine>,
    config: ServerConfig,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) -> Result<Drain, ServerError> {
    let listener = Listener::bind(&config).await?;
    serve_on(listener, engine, config, metrics, shutdown).await
}

/// Does the same as [`serve`] on a listener that the caller has opened.
///
/// # Errors
/// [`ServerError`] if the configuration cannot be used.
pub async fn serve_on(
    listener: impl Into<Listener>,
    engine: impl Into<ServedEngine>,
    config: ServerConfig,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) -> Result<Drain, ServerError> {
    serve_with(listener, engine, config, metrics, shutdown, Handover::default()).await
}

/// Does the same as [`serve_on`]. Another process may take over the listener.
pub(crate) async fn serve_with(
    listener: impl Into<Listener>,
    engine: impl Into<ServedEngine>,
    config: ServerConfig,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
    handover: Handover,
) -> Result<Drain, ServerError> {
    let served = engine.into();
    let engine = served.current();
    config.validate()?;
    config.validate_chaos(engine.config())?;
    config.validate_parsers(engine.parsers())?;
    let listener = listener.into();
    let limit = Duration::from_secs(config.shutdown_timeout_secs);
    let tls = Tls::new(&config)?;
    let mut state = AppState::new(engine, config, metrics)?;
    let app = CurrentRoutes::new(Router::new());
    let frozen = CurrentRoutes::new(Router::new());
    let swaps = Arc::new(Swaps::new(served.clone(), &app, &frozen, state.draining.clone()));
    state.swaps = Some(Arc::clone(&swaps));
    state.upgrades = handover.orders;
    state.predecessor = handover.predecessor.is_some().then(|| Arc::new(Predecessor::new()));
    app.replace(router(state.clone())?);
    frozen.replace(frozen::router(state.clone()));
    tracing::info!(address = %listener.address()?, tls = tls.is_some(), "listening");
    let reloading = reload(&state, tls.as_ref());
    let sweep = resume::sweep(Arc::clone(&state.kept), state.config.resume_ttl_secs);
    let _sweeping = AbortOnDrop(tokio::spawn(sweep).abort_handle());
    resume::revive(&state).await;
    let apps = Apps { app: app.clone(), frozen };
    let (draining, pulse) = (state.draining.clone(), state.pulse.clone());
    let mut listening = listen::open(listener, apps, tls.clone(), &state.config, draining, pulse)?;
    listening.own_file();
    // A server that got its listener from no other process has no receiver.
    let _ = handover.listening.map(|listening| listening.send(()));
    if let (Some(predecessor), Some(link)) = (&state.predecessor, handover.predecessor) {
        tokio::spawn(Arc::clone(predecessor).follow(link, Estate::of(&state)));
    }
    tokio::spawn(resume::take_over(state.clone()));
    let (responses, tracer) = (state.responses.clone(), state.tracer.clone());
    let (estate, predecessor) = (Estate::of(&state), state.predecessor.clone());
    let (draining, leaving) = (state.draining.clone(), state.leaving.clone());
    // An engine that is replaced ends when no copy of its state is left.
    drop(state);
    let mut shutdown = pin!(shutdown);
    let link = tokio::select! {
        () = reloading => None,
        () = shutdown.as_mut() => None,
        link = handover::taken_over(handover.taken_over) => Some(link),
    };
    let is_taken_over = link.is_some();
    let successor = link.map(|link| Successor::begin(link, &listening, app.get(), estate.clone()));
    handover.ending.cancel();
    let limit = || match served.current().health() {
        // In a dead engine no request ends, so a long wait would not help.
        Health::Dead => limit.min(DEAD_DRAIN_LIMIT),
        _ => limit,
    };
    let mut deadline = Instant::now() + limit();
    if is_taken_over || listening.is_activated() {
        let whose = if is_taken_over { "another process" } else { "the next process" };
        tracing::info!("{whose} accepts new connections; requests of this one end");
        listening.leave();
        // Watchers of the engine connect anew.
        leaving.cancel();
        let ended = async {
            listening.left().await;
            responses.drained().await;
            // The content of an earlier process goes to the next one, too.
            if let Some(predecessor) = &predecessor {
                predecessor.gone().await;
            }
            if let Some(successor) = &successor {
                successor.drained().await;
            }
        };
        tokio::select! {
            _ = timeout_at(deadline, ended) => {}
            () = shutdown, if is_taken_over => deadline = Instant::now() + limit(),
        }
    }
    tracing::info!(open_requests = swaps.open_requests(), "draining");
    swaps.begin_drain();
    draining.cancel();
    let engine = served.current();
    let drained = async {
        listening.drained().await;
        // Some responses are made without a connection.
        responses.drained().await;
    };
    let is_late = timeout_at(deadline, drained).await.is_err();
    for journal in swaps.journals() {
        // From here on, no end is recorded: open requests continue in the next process. They may be
        // the cause only if the engine is dead.
        journal.close(engine.health() != Health::Dead).await;
    }
    if let Some(successor) = successor {
        successor.leave(estate.remainder()).await;
    }
    // Some of the kept answers have the state, with the engine.
    estate.kept.clear();
    if let Some(tracer) = tracer {
        tracer.shutdown().await;
    }
    let open_requests = swaps.open_requests();
    swaps.end().await;
    if is_late {
        match open_requests {
            0 => tracing::info!("all requests have ended; open connections are closed"),
            requests => return Ok(Drain::CutOff { requests }),
        }
    }
    listening.close().await;
    Ok(Drain::Complete)
}

/// Ends a task when the server ends.
pub(crate) struct AbortOnDrop(pub(crate) tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads keys and certificates again when their files change, from now on. Never completes.
fn reload<'t>(state: &AppState, tls: Option<&'t Tls>) -> impl Future<Output = ()> + use<'t> {
    let (paths, keys) = (state.keys.paths().map(PathBuf::from).collect(), state.keys.clone());
    let tls = tls.filter(|_| state.config.enable_ssl_refresh);
    let certificates = tls.map(Tls::paths).unwrap_or_default();
    let keys = reload::on_change(paths, move || keys.reload());
    let certificates =
        reload::on_change(certificates, move || tls.into_iter().for_each(Tls::reload));
    async move {
        tokio::join!(keys, certificates);
    }
}

/// Returns the routes of a model that generates.
fn generating() -> Router<AppState> {
    Router::new()
        .route("/v1/completions", post(generate::<CompletionRequest>))
        .route("/v1/chat/completions", post(generate::<ChatRequest>))
        .route("/v1/chat/completions/batch", post(chat::create_batch))
        .route("/invocations", post(invocations::invoke))
        .route("/generative_scoring", post(generate::<ScoringRequest>))
        .route("/v1/messages", post(generate::<MessagesRequest>))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/streams/{id}", get(resume::continue_stream))
        .route("/v1/responses", post(generate::<ResponsesRequest>))
        .route("/v1/responses/input_tokens", post(responses::count_input_tokens))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
}

fn router(state: AppState) -> Result<Router, ServerError> {
    let generates = state.engine.model_info().heads.generates;
    let generating = match (&state.speech, generates) {
        (Some(speech), true) if speech.does_chat() => generating().merge(audio::routes()),
        (Some(_), true) => audio::routes(),
        (None, true) => generating(),
        (_, false) => Router::new(),
    };
    let router = Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/health", get(probes::health))
        .route("/ping", get(probes::health).post(probes::health))
        .route("/livez", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/version", get(probes::version))
        .route("/load", get(probes::load))
        .route("/metrics", get(metrics::render))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(openapi::page::page))
        .route("/docs/style.css", get(openapi::page::style))
        .route("/house", get(snapshots::snapshot))
        .route("/house/events", get(snapshots::events))
        .merge(generating)
        .merge(ollama::routes())
        .merge(pooling::routes(&state))
        .merge(page::routes(&state.config.root_path))
        .merge(admin::routes(&state));
    let router = match state.config.enable_tokenizer_info_endpoint {
        true => router.route("/tokenizer_info", get(tokenizer_info::tokenizer_info)),
        false => router,
    };
    let router = match state.engine.config().allow_chaos {
        true => router.merge(chaos::routes(&state)),
        false => router,
    };
    let router = router
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async move |method: Method, uri: Uri| {
            other_task::not_found(&method, uri.path(), generates)
        })
        .layer(from_fn_with_state(state.clone(), keep_alive::comment))
        .layer(from_fn_with_state(state.clone(), handover::pass_on))
        .layer(from_fn_with_state(state.clone(), memory::lease))
        .layer(from_fn_with_state(state.clone(), auth::authenticate))
        .layer(from_fn_with_state(state.clone(), draining::refuse))
        .layer(from_fn(messages::in_own_shape))
        .layer(from_fn(ollama::in_own_shape))
        .layer(from_fn_with_state(state.clone(), request_id::echo))
        .layer(from_fn(http_metrics::count));
    let router = match cors::layer(&state.config)? {
        Some(cors) => router.layer(cors),
        None => router,
    };
    let root_path = state.config.root_path.clone();
    // The prefix must be stripped before a route is chosen.
    let prefixed =
        MapRequest::new(router.with_state(state), move |r| root_path::strip(&root_path, r));
    Ok(Router::new().fallback_service(prefixed))
}
