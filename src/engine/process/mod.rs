//! An engine whose cores run in processes of their own. This process is the front: it has the
//! tokenizer, the ledger and the clients. Each engine process has the weights and a KV cache, and
//! may die of anything.

mod child;
mod facts;
mod kv_memory;
mod launcher;
mod memory;
mod strike;

#[cfg(feature = "testing")]
use std::path::PathBuf;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

pub(crate) use child::{COMMAND, ChildError, run as run_child};
use playhouse_actors::{
    link::{LoadError, Loaded, Loading},
    system::{EngineStart, MemoryBudget, System},
};
pub use strike::ProcessStrike;

pub(crate) use launcher::HowToStart;

use self::{facts::Facts, launcher::ProcessLauncher};
use super::{
    DefaultSampling, Engine, Inner, JournalSharing, StartError, StartProgress,
    adapters::{AdapterReader, AdapterRegistry},
    drafts, journal, load, settings,
    start::generation_config,
    successor::HowStarted,
    system_config::system_config,
};
use crate::{
    config::{EngineConfig, LogSettings},
    hub, parsers,
    text::HfTextCodec,
};

/// The parts that an engine shares with others.
#[derive(Default)]
pub(super) struct Beside {
    /// The budget of the memory of requests. `None`: its own.
    pub(super) memory: Option<Arc<MemoryBudget>>,
    pub(super) sharing: JournalSharing,
}

impl Engine {
    /// Starts as [`Engine::spawn`] does, with the model in a process of its own. That process runs
    /// this same program. Its command line must be read by [`crate::cli::main`].
    ///
    /// # Errors
    /// As [`Engine::start`]. [`StartError::EngineProcess`] if the process does not load the model.
    pub(crate) async fn spawn_in_process(
        how: HowToStart,
        config: EngineConfig,
        log: &LogSettings,
        progress: impl FnMut(StartProgress) + Send + 'static,
        sharing: JournalSharing,
    ) -> Result<Self, StartError> {
        let beside = Beside { memory: None, sharing };
        Self::launch_process(how, config, log, progress, beside).await
    }

    /// Starts as [`Engine::start`] does, with the model in a process that runs `program`, which is
    /// the command `playhouse`. For tests, whose own program is another one.
    ///
    /// # Errors
    /// As [`Engine::start`]. [`StartError::EngineProcess`] if the process does not load the model.
    #[cfg(feature = "testing")]
    pub async fn start_in_process_of(
        program: impl Into<PathBuf>,
        config: EngineConfig,
    ) -> Result<Self, StartError> {
        let how = HowToStart { program: Some(program.into()), keeps_spare: false };
        let log = LogSettings::default();
        Self::launch_process(how, config, &log, |_| (), Beside::default()).await
    }

    /// Starts with the model in processes.
    pub(super) async fn launch_process(
        how: HowToStart,
        config: EngineConfig,
        log: &LogSettings,
        mut progress: impl FnMut(StartProgress) + Send + 'static,
        beside: Beside,
    ) -> Result<Self, StartError> {
        let (config, mut progress) = tokio::task::spawn_blocking(move || {
            let downloaded = &mut |bytes| progress(StartProgress::Download(bytes));
            let config = drafts::resolved(hub::with_files(config, downloaded)?)?;
            Ok::<_, StartError>((config, progress))
        })
        .await
        .map_err(|error| StartError::Panicked(error.to_string()))??;
        let launcher = ProcessLauncher::new(how.clone(), settings::encode(&config, log))
            .map_err(StartError::Threads)?;
        let launcher = Arc::new(launcher);
        let text = text_side(config.clone());
        let process = load(&launcher, &config, |report| {
            if let Some(report) = facts::read(&report) {
                progress(report);
            }
        });
        let (text, process) = tokio::join!(text, process);
        let process = process?;
        let (codec, default_sampling) = text?;
        let facts: Facts = facts::read(&process.facts)
            .ok_or_else(|| StartError::EngineProcess("its facts are not readable".to_owned()))?;
        let codec = codec.with_media_if(facts.info.max_item_embeds > 0);
        let chat_templates = codec.chat_templates();
        let loaded = facts.loaded(&config, Arc::new(codec), chat_templates, default_sampling);
        // A successor has as many blocks, whatever memory is free then.
        let num_gpu_blocks_override = Some(loaded.info.num_blocks);
        let pinned = EngineConfig { num_gpu_blocks_override, ..config.clone() };
        let pinned = settings::encode(&pinned, log);
        launcher.set_settings(pinned.clone());
        let others = start_others(&how, &config, &pinned).await?;
        let served_model_names = config.served_names();
        let mut settings =
            system_config(&config, &loaded.info, loaded.device_kind, &served_model_names);
        settings.memory = beside.memory;
        let opened = journal::open(&config, &loaded, &settings, beside.sharing)?;
        settings.journal = opened.as_ref().map(|opened| Arc::clone(&opened.journal));
        let (info, codec) = (loaded.info.clone(), Arc::clone(&loaded.codec));
        let first: EngineStart = (launcher, process);
        let system = System::spawn_front(settings, info, codec, first, others, config.seed).await?;
        system.ready().await?;
        let (parsers, token_rules) = (parsers::Registry::default(), Arc::default());
        let adapters = config.enable_lora.then(|| {
            let (names, resolver) = (served_model_names.clone(), config.lora_resolver_dir.clone());
            AdapterRegistry::new(AdapterReader::EngineProcess, names, resolver)
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
            how: HowStarted::InProcesses(how, log.clone()),
            journals: opened.map(|opened| opened.folder),
        };
        Self { inner: Arc::new(inner) }.with_lora_modules().await
    }
}

/// Starts a process and waits until its model is loaded.
async fn load(
    launcher: &ProcessLauncher,
    config: &EngineConfig,
    progress: impl FnMut(Vec<u8>),
) -> Result<Loaded, StartError> {
    let silence_max = Duration::try_from_secs_f64(config.hang_timeout_secs);
    let loaded = async {
        let loading = Loading::begin(launcher, silence_max.unwrap_or(Duration::MAX))?;
        loading.loaded(progress).await
    };
    loaded.await.map_err(|error| match error {
        LoadError::Refused(why) => StartError::EngineProcess(why),
        ended @ LoadError::Ended(_) => StartError::EngineProcess(ended.to_string()),
    })
}

/// Starts the engines after the first one, one after the other. Their settings have its number of
/// blocks. The first one has packed the weights, so these map the same ones.
async fn start_others(
    how: &HowToStart,
    config: &EngineConfig,
    pinned: &[u8],
) -> Result<Vec<EngineStart>, StartError> {
    let mut others: Vec<EngineStart> = Vec::new();
    for engine in 1..config.data_parallel_size {
        tracing::info!(engine, "a further engine loads the model");
        let launcher = ProcessLauncher::new(how.clone(), pinned.to_vec());
        let launcher = Arc::new(launcher.map_err(StartError::Threads)?);
        let loaded = load(&launcher, config, |_| ()).await?;
        others.push((launcher, loaded));
    }
    Ok(others)
}

/// Loads the tokenizer and the sampling defaults.
async fn text_side(config: EngineConfig) -> Result<(HfTextCodec, DefaultSampling), StartError> {
    let load = move || -> Result<_, StartError> {
        let codec = load::load_codec(&config)?;
        let generation = generation_config(&config)?;
        Ok((codec, DefaultSampling::from(&generation)))
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded.map_err(|error| StartError::Panicked(error.to_string()))?
}
