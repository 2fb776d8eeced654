//! A running engine for a command: the runtime, the model's loading, and its end.

use std::{error::Error, io, num::NonZero, sync::Arc, thread};

use parking_lot::RwLock;

use super::{CliError, file_limit, load_bar::LoadBar};
#[cfg(unix)]
use crate::engine::HowToStart;
use crate::{
    api::HandlerProfiler,
    config::{EngineConfig, LogSettings},
    engine::{Engine, JournalSharing, StartError, StartProgress},
    hub::{self, DownloadProgress, HubError},
};

/// Threads besides the runtime's workers and those that compute: the device's, the watchdog's,
/// those that compile grammars and those that the runtime blocks on.
const OTHER_THREADS: usize = 12;

/// Runs a command's work on a runtime for the actors. The model computes on threads of its own, so
/// few workers are enough. The function does not wait for tasks that the work leaves behind, for
/// example an interrupted load.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let workers = cores.clamp(2, 8);
    require_threads(workers + cores + OTHER_THREADS)
        .map_err(CliError::io("cannot start the threads of the program"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(CliError::io("cannot start the runtime"))?;
    let outcome = runtime.block_on(async {
        file_limit::survive()?;
        work.await
    });
    runtime.shutdown_background();
    outcome
}

/// Starts `count` threads at once and lets them end, to find out whether the system allows them.
/// The runtime would panic if it got no thread, and wait for ever if it got too few.
fn require_threads(count: usize) -> io::Result<()> {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let mut threads = Vec::with_capacity(count);
    for _ in 0..count {
        let gate = Arc::clone(&gate);
        let started = thread::Builder::new().spawn(move || drop(gate.read()));
        threads.push(started.map_err(|error| {
            let started = threads.len();
            io::Error::new(error.kind(), format!("{started} of {count} were started: {error}"))
        })?);
    }
    drop(closed);
    for thread in threads {
        // The thread does nothing that could panic.
        let _ = thread.join();
    }
    rayon::ThreadPoolBuilder::new().build_global().or_else(|error| match error.source() {
        // Rayon's threads run already.
        None => Ok(()),
        Some(_) => Err(io::Error::other(error)),
    })
}

/// Returns the settings with folders in place of the names of models. Fetches models that are not
/// in the cache, with a progress bar on a terminal.
pub(crate) async fn with_files(config: EngineConfig) -> Result<EngineConfig, CliError> {
    let fetch = move || with_bar(|progress| hub::with_files(config, progress));
    let fetched = tokio::task::spawn_blocking(fetch).await;
    fetched.map_err(|error| StartError::Panicked(error.to_string()))?
}

/// Does work of the hub, with a progress bar on a terminal.
pub(crate) fn with_bar<T>(
    work: impl FnOnce(&mut dyn FnMut(DownloadProgress)) -> Result<T, HubError>,
) -> Result<T, CliError> {
    let bar = LoadBar::new();
    let listener = bar.listener();
    Ok(work(&mut |progress| listener(StartProgress::Download(progress)))?)
}

/// Loads the model and starts the engine, with a progress bar on a terminal. It has no journal:
/// only a server has clients that come back, and its journal may be in use.
pub(crate) async fn start(config: EngineConfig) -> Result<Engine, CliError> {
    let config = EngineConfig { journal: None, ..config };
    start_with_journal(config, JournalSharing::Alone).await
}

/// Does the same for a server, with the journal that its settings name.
pub(crate) async fn start_with_journal(
    config: EngineConfig,
    sharing: JournalSharing,
) -> Result<Engine, CliError> {
    let bar = LoadBar::new();
    let engine = Engine::spawn_sharing(config, bar.listener(), sharing).await;
    Ok(engine?)
}

/// Does the same for an engine whose actors report their times.
pub(crate) async fn start_profiled(
    config: EngineConfig,
    handlers: Arc<dyn HandlerProfiler>,
) -> Result<Engine, CliError> {
    let config = EngineConfig { journal: None, ..config };
    let bar = LoadBar::new();
    let engine = Engine::spawn_profiled(config, bar.listener(), handlers).await;
    Ok(engine?)
}

/// Does the same for an engine whose model is in a process of its own.
#[cfg(unix)]
pub(crate) async fn start_process(
    config: EngineConfig,
    log: &LogSettings,
    keeps_spare: bool,
    sharing: JournalSharing,
) -> Result<Engine, CliError> {
    let bar = LoadBar::new();
    let how = HowToStart { program: None, keeps_spare };
    let engine = Engine::spawn_in_process(how, config, log, bar.listener(), sharing).await;
    Ok(engine?)
}

/// Refuses an engine process, because this system has no Unix sockets to link it with.
#[cfg(not(unix))]
pub(crate) async fn start_process(
    _: EngineConfig,
    _: &LogSettings,
    _: bool,
    _: JournalSharing,
) -> Result<Engine, CliError> {
    Err(CliError::Usage(
        "server.single_process = false: this system has no Unix sockets; expected true".to_owned(),
    ))
}
