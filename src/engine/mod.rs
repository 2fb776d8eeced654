//! The engine: a loaded model behind a running actor system. Embedding programs, the server and the
//! command line use it.

mod adapter_loads;
mod adapters;
mod beam_search;
mod builder;
mod cuda_compiler;
mod default_sampling;
mod device;
mod drafts;
mod encoder_exchange;
mod error;
mod journal;
mod kv_blocks;
mod load;
mod media;
mod pause;
mod pooling;
#[cfg(unix)]
mod process;
mod recorder;
pub(crate) mod replay;
mod replayed_media;
pub(crate) mod settings;
mod speech;
mod start;
mod successor;
mod system_config;
#[cfg(feature = "server")]
mod takeover;
mod view;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use adapters::LoraError;
pub use beam_search::{Beam, BeamSearchOutput, BeamSearchParams};
pub use builder::EngineBuilder;
pub use default_sampling::DefaultSampling;
pub(crate) use device::{choose as choose_device, tensor_cores};
pub use error::StartError;
pub(crate) use journal::JournalSharing;
pub(crate) use load::engine_threads;
use playhouse_actors::system::chaos::ChaosControl;
use playhouse_actors::{
    error::RequestError,
    logic::request::{
        EngineRequest,
        ids::{EngineIndex, Epoch, RequestId},
        lora::LoraRequest,
    },
    message::input_processor::RawRequest,
    ports::{HandlerProfiler, ModelInfo, TextCodec},
    supervision::directory::ActorStats,
    system::{
        ChoiceStream, DrainError, EngineProcessView, EngineView, Health, Journal, MemoryBudget,
        Status, Submission, System, SystemConfig, TextJobs,
    },
};
pub use pooling::{Classification, MediaText, PoolError, PooledPrompt, RankedDocument};
pub(crate) use pooling::{PairSide, ranked};
#[cfg(unix)]
pub use process::ProcessStrike;
#[cfg(unix)]
pub(crate) use process::{COMMAND as ENGINE_PROCESS, ChildError, HowToStart, run_child};
#[cfg(feature = "cli")]
pub(crate) use recorder::KEYS_SETTING;
pub use speech::{
    LiveSound, SoundPiece, SoundPieces, Speech, SpeechOrder, SpeechTask, TooLong, Transcript,
    UnsupportedLanguage,
};
pub use start::{LoadedModel, PoolerFacts, StartProgress};
#[cfg(feature = "server")]
pub(crate) use takeover::TakeoverError;

use self::{
    adapters::{AdapterReader, AdapterRegistry},
    builder::Registries,
    load::{LoadRegistries, Loaded},
    successor::HowStarted,
    system_config::system_config,
};
use crate::{
    config::EngineConfig,
    executor::Constraints,
    hub,
    journal::JournalFolder,
    parsers,
    token_rules::TokenRules,
    turn::{ParserChoices, TurnParsers},
};

/// A loaded model that serves requests. Clones share one engine. Two engines in one process share
/// no actors.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    system: System,
    loaded: LoadedModel,
    served_model_names: Vec<String>,
    config: EngineConfig,
    parsers: parsers::Registry,
    /// The parsers of answers that the model's chat templates suggest, once they were needed.
    suggested_parsers: OnceLock<TurnParsers>,
    token_rules: Arc<TokenRules>,
    adapters: Option<AdapterRegistry>,
    how: HowStarted,
    /// The folder of its journal, and of those of other engines.
    journals: Option<Arc<JournalFolder>>,
}

impl Engine {
    /// Returns a builder for an engine with the program's own model families, parsers and token
    /// rules.
    pub fn builder(config: EngineConfig) -> EngineBuilder {
        EngineBuilder::new(config)
    }

    /// Loads the model of `config` and starts the actors. It must be called within a tokio runtime
    /// with several threads.
    ///
    /// # Errors
    /// [`StartError`] names the fault of the model's folder, the settings or the machine.
    pub async fn start(config: EngineConfig) -> Result<Self, StartError> {
        Self::builder(config).start().await
    }

    /// Starts as [`Engine::start`] does, and calls `progress` from a blocking thread meanwhile.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn spawn(
        config: EngineConfig,
        progress: impl FnMut(StartProgress) + Send + 'static,
    ) -> Result<Self, StartError> {
        Self::builder(config).on_progress(progress).start().await
    }

    /// Starts as [`Engine::spawn`] does. `profiler` receives the time that actors take for each
    /// message.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn spawn_profiled(
        config: EngineConfig,
        progress: impl FnMut(StartProgress) + Send + 'static,
        profiler: Arc<dyn HandlerProfiler>,
    ) -> Result<Self, StartError> {
        let change = |settings: &mut SystemConfig| settings.profiler = Some(profiler);
        Self::launch(config, Registries::default(), progress, change, JournalSharing::Alone).await
    }

    /// Starts as [`Engine::spawn`] does, with a journal that other engines share in this way.
    ///
    /// # Errors
    /// As [`Engine::start`].
    #[cfg(feature = "cli")]
    pub(crate) async fn spawn_sharing(
        config: EngineConfig,
        progress: impl FnMut(StartProgress) + Send + 'static,
        sharing: JournalSharing,
    ) -> Result<Self, StartError> {
        Self::launch(config, Registries::default(), progress, |_| (), sharing).await
    }

    /// Starts as [`Engine::spawn`] does. `change` may change the actors' settings, including those
    /// that an operator cannot set.
    ///
    /// # Errors
    /// As [`Engine::start`].
    #[cfg(feature = "testing")]
    pub async fn spawn_with(
        config: EngineConfig,
        progress: impl FnMut(StartProgress) + Send + 'static,
        change: impl FnOnce(&mut SystemConfig),
    ) -> Result<Self, StartError> {
        Self::launch(config, Registries::default(), progress, change, JournalSharing::Alone).await
    }

    async fn launch(
        config: EngineConfig,
        registries: Registries,
        mut progress: impl FnMut(StartProgress) + Send + 'static,
        change: impl FnOnce(&mut SystemConfig),
        sharing: JournalSharing,
    ) -> Result<Self, StartError> {
        if config.data_parallel_size > 1 {
            return Err(StartError::DataParallel(config.data_parallel_size));
        }
        let how = HowStarted::InThisProcess(Box::new(registries.clone()));
        let Registries { families, parsers, token_rules } = registries;
        let started = tokio::task::spawn_blocking(move || {
            let downloaded = &mut |bytes| progress(StartProgress::Download(bytes));
            let config = drafts::resolved(hub::with_files(config, downloaded)?)?;
            let registries = LoadRegistries { families, token_rules };
            let loaded = load::load(&config, registries, &mut progress)?;
            Ok::<_, StartError>((config, loaded))
        })
        .await
        .map_err(|error| StartError::Panicked(error.to_string()))?;
        let (config, loaded) = started?;
        let served_model_names = config.served_names();
        let Loaded { model: loaded, executors, adapters, constraints } = loaded;
        let Constraints { grammars, token_rules } = constraints;
        let mut settings =
            system_config(&config, &loaded.info, loaded.device_kind, &served_model_names);
        let opened = journal::open(&config, &loaded, &settings, sharing)?;
        settings.journal = opened.as_ref().map(|opened| Arc::clone(&opened.journal));
        settings.recorder = recorder::start(&config, &loaded, &settings.scheduler)?;
        change(&mut settings);
        let codec = Arc::clone(&loaded.codec);
        let system = System::spawn(settings, executors, codec, grammars, config.seed).await?;
        system.ready().await?;
        let adapters = adapters.map(|store| {
            let resolver = config.lora_resolver_dir.clone();
            let reader = AdapterReader::Store(store);
            AdapterRegistry::new(reader, served_model_names.clone(), resolver)
        });
        let inner = Inner {
            system,
            loaded,
            served_model_names,
            config,
            parsers,
            suggested_parsers: OnceLock::new(),
            token_rules,
            adapters,
            how,
            journals: opened.map(|opened| opened.folder),
        };
        Self { inner: Arc::new(inner) }.with_lora_modules().await
    }

    /// Loads the adapters of the settings.
    async fn with_lora_modules(self) -> Result<Self, StartError> {
        for module in &self.config().lora_modules {
            let loaded = self.load_adapter_folder(&module.name, &module.path, false).await;
            if let Err(error) = loaded {
                self.shutdown().await;
                return Err(error.into());
            }
        }
        let of_media = self.config().default_mm_loras.clone().unwrap_or_default().0;
        for (kind, path) in of_media {
            if let Err(error) = self.load_lora_adapter(kind.as_str(), &path, false).await {
                self.shutdown().await;
                return Err(StartError::MediaAdapter(error));
            }
        }
        Ok(self)
    }

    /// Returns the facts about the model that the actors use.
    #[must_use]
    pub fn model_info(&self) -> &ModelInfo {
        &self.inner.loaded.info
    }

    /// Returns the loaded model: its origin, its formats and its sizes.
    #[must_use]
    pub fn loaded(&self) -> &LoadedModel {
        &self.inner.loaded
    }

    /// Returns the names that requests may use for the model. Answers contain the first.
    #[must_use]
    pub fn served_model_names(&self) -> &[String] {
        &self.inner.served_model_names
    }

    /// Returns the engine's settings.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// Returns the model's path as the settings give it.
    #[must_use]
    pub fn model_root(&self) -> &str {
        &self.inner.loaded.root
    }

    /// Returns the place of an adapter as its user knows it: its name on the hub, or its folder.
    #[must_use]
    pub fn lora_adapter_root(adapter: &LoraRequest) -> String {
        hub::adapter_root(&adapter.path)
    }

    /// Returns the sampling defaults of the model's authors.
    #[must_use]
    pub fn default_sampling(&self) -> &DefaultSampling {
        &self.inner.loaded.default_sampling
    }

    /// Returns the tokenizer with its chat template.
    #[must_use]
    pub fn codec(&self) -> &Arc<dyn TextCodec> {
        &self.inner.loaded.codec
    }

    /// Returns whether the default chat template has a call that rejects messages.
    pub(crate) fn template_may_reject(&self) -> bool {
        let templates = &self.inner.loaded.chat_templates;
        templates.first().is_some_and(|source| source.contains("raise_exception"))
    }

    /// Returns the parsers that settings may name.
    #[must_use]
    pub fn parsers(&self) -> &parsers::Registry {
        &self.inner.parsers
    }

    /// Returns the chosen parsers for answers of the model.
    ///
    /// # Errors
    /// If no parser has that name.
    pub(crate) fn turn_parsers(
        &self,
        choices: &ParserChoices,
    ) -> Result<TurnParsers, parsers::UnknownParser> {
        let Inner { loaded, parsers, suggested_parsers: suggested, .. } = &*self.inner;
        let find = || TurnParsers::new(choices, parsers, &loaded.chat_templates, &*loaded.codec);
        match (*choices == ParserChoices::default(), suggested.get()) {
            (false, _) => find(),
            (true, Some(known)) => Ok(known.clone()),
            (true, None) => find().map(|found| suggested.get_or_init(|| found).clone()),
        }
    }

    /// Returns the token rules that requests may ask for.
    #[must_use]
    pub fn token_rules(&self) -> &TokenRules {
        &self.inner.token_rules
    }

    /// Returns the memory budget for requests. An embedding program that takes requests from others
    /// leases the memory of those requests, as the server does. Outputs that wait for their readers
    /// are leased already.
    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        self.inner.system.memory()
    }

    /// Returns the jobs that tokenize and render templates, in turns with requests.
    #[must_use]
    pub fn text_jobs(&self) -> &Arc<TextJobs> {
        self.inner.system.text_jobs()
    }

    /// Submits a request. An accepted request ends exactly once, even if an actor dies.
    ///
    /// # Errors
    /// [`RequestError`] if the request is invalid, or the engine is full or draining.
    pub async fn submit(&self, request: RawRequest) -> Result<Submission, RequestError> {
        self.inner.token_rules.check(&request.params.token_rules)?;
        let max_tokens = self.limited(request.max_tokens);
        self.inner.system.submit(RawRequest { max_tokens, ..request }).await
    }

    /// Returns a wish for output tokens within the operator's limit. As in vLLM, one that is longer
    /// than the context stays, because it is refused.
    fn limited(&self, wanted: Option<u32>) -> Option<u32> {
        match wanted {
            Some(most) if most as usize > self.model_info().max_model_len => wanted,
            _ => self.default_sampling().limited(wanted),
        }
    }

    /// Returns the journal, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.inner.system.journal()
    }

    /// Gives the engine requests of one prompt that an earlier process has accepted. No limit
    /// applies to them. Returns their streams.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] if the ledger does not answer.
    pub async fn restore(
        &self,
        requests: Vec<Arc<EngineRequest>>,
    ) -> Result<Vec<ChoiceStream>, RequestError> {
        self.inner.system.restore(requests).await
    }

    /// Returns whether a request is accepted and has not ended.
    #[must_use]
    pub fn is_live(&self, request: RequestId) -> bool {
        self.inner.system.is_live(request)
    }

    /// Returns whether the engine can serve.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.system.health()
    }

    /// Returns the state of the queues and the KV cache, and the count of restarts.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] while the scheduler is being replaced.
    pub async fn status(&self) -> Result<Status, RequestError> {
        self.inner.system.status().await
    }

    /// Returns why the breaker is open, if it is. The reason has no text of a client.
    #[must_use]
    pub fn breaker_reason(&self) -> Option<String> {
        self.inner.system.breaker_reason()
    }

    /// Returns the process of the first engine, if the model is in processes of its own.
    #[must_use]
    pub fn engine_process(&self) -> Option<EngineProcessView> {
        self.inner.system.engine_process()
    }

    /// Returns every engine that has a process of its own.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineView> {
        self.inner.system.engines()
    }

    /// Lets an engine have no new requests. Its requests run to their ends, or with `moves` go on
    /// in other engines at once.
    ///
    /// # Errors
    /// [`DrainError`] if there is no such engine, or no other one would get requests.
    pub fn drain_engine(&self, engine: EngineIndex, moves: bool) -> Result<(), DrainError> {
        self.inner.system.drain_engine(engine, moves)
    }

    /// Lets an engine have new requests again.
    ///
    /// # Errors
    /// [`DrainError`] if there is no such engine.
    pub fn undrain_engine(&self, engine: EngineIndex) -> Result<(), DrainError> {
        self.inner.system.undrain_engine(engine)
    }

    /// Returns the number of accepted requests whose end is not delivered yet.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.inner.system.open_requests()
    }

    /// Returns the statistics of every actor, supervisors first.
    #[must_use]
    pub fn actors(&self) -> Vec<ActorStats> {
        self.inner.system.actors()
    }

    /// Returns the epoch of the core. It grows whenever the core restarts from the committed
    /// tokens.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.system.epoch()
    }

    /// Returns the control that injects faults. With `allow_chaos` in its settings, the engine
    /// replaces actors however often they die.
    #[must_use]
    pub fn chaos(&self) -> ChaosControl<'_> {
        self.inner.system.chaos()
    }

    /// Rejects new requests from now on.
    pub fn begin_drain(&self) {
        self.inner.system.begin_drain();
    }

    /// Rejects new requests and waits until all open ones end. Returns `false` if some are still
    /// open after `limit`.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.system.drain(limit).await
    }

    /// Aborts open requests and stops all actors.
    pub async fn shutdown(&self) {
        self.inner.system.shutdown().await;
    }
}
