//! The state that all handlers share.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::mpsc;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    ServerConfig, ServerError,
    admin::Control,
    audio::RealtimeSeats,
    generate::open_requests::OpenRequests,
    handover::{Predecessor, UpgradeOrder},
    health::pulse::RuntimePulse,
    http::{auth::ApiKeys, error::ApiError},
    media::{AskedModel, MediaAccess, MediaParts},
    responses::ResponseStore,
    resume::{KeptAnswers, Rendering},
    snapshots::SnapshotFeed,
    swap::Swaps,
    traces::{self, Tracer},
    turn::{self, TurnParsers},
};
use crate::{
    api::LoraRequest,
    engine::{Engine, LoraError, Speech},
};

/// Cheap to clone: one for every request.
#[derive(Clone)]
pub(super) struct AppState {
    pub(super) engine: Engine,
    pub(super) config: Arc<ServerConfig>,
    pub(super) keys: Arc<ApiKeys>,
    pub(super) metrics: PrometheusHandle,
    /// Makes a span of each request, if the operator wants traces.
    pub(super) tracer: Option<Tracer>,
    /// The parsers of the model's answers.
    pub(super) parsers: Arc<TurnParsers>,
    /// The content of media behind URLs.
    pub(super) media: Arc<MediaAccess>,
    pub(super) open: OpenRequests,
    /// The answers that outlive their connections.
    pub(super) kept: Arc<KeptAnswers>,
    /// The facts that decide how outputs become answers.
    pub(super) rendering: Arc<Rendering>,
    pub(super) responses: Arc<ResponseStore>,
    pub(super) snapshots: Arc<SnapshotFeed>,
    /// The facts that operators have set.
    pub(super) control: Arc<Control>,
    /// Cancelled when the server begins to drain.
    pub(super) draining: CancellationToken,
    pub(super) pulse: RuntimePulse,
    /// The model, if it writes down what it hears.
    pub(super) speech: Option<Arc<Speech>>,
    /// The places for sessions of `/v1/realtime`.
    pub(super) realtime: RealtimeSeats,
    /// When the server started to serve the model, seconds since 1970.
    pub(super) created: u64,
    /// Swaps of the model. `None` if the server does not listen.
    pub(super) swaps: Option<Arc<Swaps>>,
    /// Takes orders to start another process in the place of this one.
    pub(super) upgrades: Option<mpsc::Sender<UpgradeOrder>>,
    /// The process before an upgrade, whose answers clients may ask this one for.
    pub(super) predecessor: Option<Arc<Predecessor>>,
    /// Cancelled when another process gets the new connections.
    pub(super) leaving: CancellationToken,
    /// Cancelled when another model is served, or another process serves.
    pub(super) superseded: CancellationToken,
    /// Counts the copies of this state, so that the engine outlives all its handlers.
    in_use: TaskTrackerToken,
}

impl AppState {
    /// # Errors
    /// If the file of keys cannot be read, a parser is not known, or spans cannot be sent.
    pub(super) fn new(
        engine: Engine,
        config: ServerConfig,
        metrics: PrometheusHandle,
    ) -> Result<Self, ServerError> {
        let keys = Arc::new(ApiKeys::new(&config)?);
        let parsers = Arc::new(turn::parsers(&config, &engine)?);
        let tracer = traces::tracer(&config)?;
        let rendering = Arc::new(Rendering::new(&config, &engine));
        let responses = Arc::new(ResponseStore::new(&config, engine.memory().clone()));
        let media = Arc::new(MediaAccess::new(&config));
        let (config, open) = (Arc::new(config), OpenRequests::default());
        let leaving = CancellationToken::new();
        let superseded = leaving.child_token();
        let snapshots = Arc::new(SnapshotFeed::new(engine.clone(), superseded.clone()));
        let speech = speech(&engine);
        let realtime = RealtimeSeats::new(config.max_realtime_sessions);
        let created = unix_seconds();
        let (draining, pulse) = (CancellationToken::new(), RuntimePulse::new());
        Ok(Self {
            engine,
            config,
            keys,
            metrics,
            tracer,
            parsers,
            media,
            open,
            kept: Arc::default(),
            rendering,
            responses,
            snapshots,
            control: Arc::default(),
            draining,
            pulse,
            speech,
            realtime,
            created,
            swaps: None,
            upgrades: None,
            predecessor: None,
            leaving,
            superseded,
            in_use: TaskTracker::new().token(),
        })
    }

    /// Returns the state of the same server with another engine. The parts that belong to the
    /// model are made anew.
    ///
    /// # Errors
    /// If a parser is not known.
    pub(super) fn successor(&self, engine: Engine) -> Result<Self, ServerError> {
        let superseded = self.leaving.child_token();
        Ok(Self {
            parsers: Arc::new(turn::parsers(&self.config, &engine)?),
            rendering: Arc::new(Rendering::new(&self.config, &engine)),
            snapshots: Arc::new(SnapshotFeed::new(engine.clone(), superseded.clone())),
            speech: speech(&engine),
            engine,
            open: OpenRequests::default(),
            control: Arc::default(),
            created: unix_seconds(),
            superseded,
            in_use: TaskTracker::new().token(),
            ..self.clone()
        })
    }

    /// Returns the tracker of this state's copies.
    pub(super) fn users(&self) -> TaskTracker {
        self.in_use.task_tracker().clone()
    }

    /// Returns the name to answer under: the one that the client asked for, or the model's first.
    ///
    /// # Errors
    /// 404 if no model goes by that name.
    pub(super) fn model_name(&self, asked: Option<&str>) -> Result<String, ApiError> {
        let served = self.engine.served_model_names();
        match asked.filter(|name| !name.is_empty()) {
            None => Ok(served.first().cloned().unwrap_or_default()),
            Some(name) if served.iter().any(|known| known == name) => Ok(name.to_owned()),
            Some(name) if self.engine.has_lora_adapter(name) => Ok(name.to_owned()),
            Some(name) => Err(ApiError::unknown_model(name, served)),
        }
    }

    /// Returns the model as one that writes down what it hears.
    ///
    /// # Errors
    /// 404 if it is none. Such a server has no routes that ask for it.
    pub(super) fn speech(&self) -> Result<&Speech, ApiError> {
        let message = "The model does not support Transcriptions API";
        self.speech.as_deref().ok_or_else(|| ApiError::not_found_object(message))
    }

    /// Returns whether the model writes down what it hears, and does nothing else.
    pub(super) fn only_hears(&self) -> bool {
        self.speech.as_ref().is_some_and(|speech| !speech.does_chat())
    }

    /// Returns the adapter that the client asked for as its model, if it is one. An adapter that
    /// is not loaded may be found in the folder of the resolver.
    ///
    /// # Errors
    /// If an adapter was found and cannot be used.
    pub(super) async fn adapter(
        &self,
        asked: Option<&str>,
    ) -> Result<Option<Arc<LoraRequest>>, ApiError> {
        let served = self.engine.served_model_names();
        let is_other = |name: &&str| !name.is_empty() && !served.iter().any(|own| own == name);
        let Some(name) = asked.filter(is_other) else { return Ok(None) };
        match self.engine.lora_adapter(name).await {
            Ok(adapter) => Ok(Some(adapter)),
            Err(LoraError::Unknown { .. }) => Err(ApiError::unknown_model(name, served)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the model called `name` for errors about parts of media.
    pub(super) fn asked_model<'n>(&self, name: &'n str) -> AskedModel<'n> {
        AskedModel { name, serves_text_alone: self.engine.loaded().serves_text_alone }
    }

    /// Returns the reader of the images, videos and sounds of a prompt for the model called `name`.
    pub(super) fn media_parts<'n>(&self, name: &'n str) -> MediaParts<'n> {
        MediaParts::new(self.asked_model(name), self.engine.codec().media().cloned())
    }
}

/// Returns the model as one that writes down what it hears, if it is one.
fn speech(engine: &Engine) -> Option<Arc<Speech>> {
    let loaded = engine.loaded();
    Speech::of(&loaded.architecture, &loaded.codec).map(Arc::new)
}

/// Returns the seconds since 1970, as OpenAI's `created` has them.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The value of `system_fingerprint`: answers with the same one can be compared.
pub(super) const SYSTEM_FINGERPRINT: &str = concat!("playhouse-", env!("CARGO_PKG_VERSION"));
