//! The engine process itself: loads the model by the front's settings, and runs the core until the
//! front is gone.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::net::UnixStream as Socket},
    sync::Arc,
};

use playhouse_actors::{
    link::incoming::LinkError,
    system::{Core, EngineEnd, EngineOver},
};
use tokio::{
    net::UnixStream,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    facts::{self, Facts},
    kv_memory,
};
use crate::{
    config::{Config, ConfigError, EngineConfig},
    engine::{
        StartError, StartProgress,
        builder::Registries,
        load::{self, LoadRegistries, Loaded},
        recorder, settings,
        system_config::system_config,
    },
};

/// The command that runs an engine process. It is no command for users.
pub(crate) const COMMAND: &str = "engine-process";

/// Added to the share of memory, in thousandths, by which Linux chooses the process to end.
#[cfg(target_os = "linux")]
const OOM_SCORE: &str = "300";

/// The kinds of memory in a core dump: private memory without a file, and the heads of libraries.
/// The next process starts only after the dump, and the KV cache may have gigabytes.
#[cfg(target_os = "linux")]
const DUMPED: &str = "0x31";

/// The reason why an engine process ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// Standard input is no link.
    #[error("`playhouse {COMMAND}` is started by `playhouse serve` alone: {0}")]
    NoLink(#[source] io::Error),
    /// The settings are not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The supervisors gave up.
    #[error("the supervisors of the engine process gave up")]
    GaveUp,
    /// The task of the link panicked.
    #[error("the task of the link to the server panicked")]
    Panicked,
    /// The link to the front is broken.
    #[error("the link to the server is broken: {0}")]
    Broken(LinkError),
}

/// Runs an engine process. `prepare` gets the settings before the model is loaded.
///
/// # Errors
/// [`ChildError`]. The end of the front is no error.
pub(crate) async fn run(prepare: impl FnOnce(&Config) + Send + 'static) -> Result<(), ChildError> {
    die_with_front();
    die_first();
    dump_little();
    // The front ends this process. A signal to the whole group or service first ends the front's
    // open requests, which need this process.
    let _ignored = ignore_signals();
    let link = link().map_err(ChildError::NoLink)?;
    let kept = kv_memory::take().map_err(ChildError::NoLink)?;
    // On a worker of the runtime: a sign of life shows that its threads run.
    let served = tokio::spawn(async move {
        let (reader, writer) = link.into_split();
        serve(EngineEnd::new(Box::new(reader), Box::new(writer)), kept, prepare).await
    });
    match served.await {
        Ok(outcome) => outcome,
        // A panic is reported by its hook.
        Err(_) => Err(ChildError::Panicked),
    }
}

async fn serve(
    mut end: EngineEnd,
    kept: Option<File>,
    prepare: impl FnOnce(&Config),
) -> Result<(), ChildError> {
    let sent = match end.settings().await {
        Ok(sent) => sent,
        Err(error) => return without_front(error),
    };
    let config = match settings::decode(&sent) {
        Ok(config) => config,
        Err(error) => {
            end.failed(error.to_string()).await;
            return Err(error.into());
        }
    };
    prepare(&config);
    let config = Arc::new(config.engine);
    let (of_load, mut report) = (Arc::clone(&config), end.progress());
    let load = tokio::task::spawn_blocking(move || {
        let mut progress = |progress: StartProgress| report(facts::write(&progress));
        let Registries { families, token_rules, .. } = Registries::default();
        let loaded = load::load(&of_load, LoadRegistries { families, token_rules }, &mut progress)?;
        if let Some(kept) = kept {
            kv_memory::offer(kept, &of_load, &loaded);
        }
        Ok(loaded)
    });
    let loaded = match end.while_loading(load).await {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(panic)) => Err(StartError::Panicked(panic.to_string())),
        Err(error) => return without_front(error),
    };
    match loaded {
        Ok(loaded) => {
            let facts = facts_of(&loaded);
            match core(&config, loaded) {
                Ok(core) => over(end.serve(facts, core).await),
                Err(error) => refuse(end, &error).await,
            }
        }
        Err(error) => refuse(end, &error).await,
    }
}

fn over(over: EngineOver) -> Result<(), ChildError> {
    match over {
        EngineOver::Front(error) => without_front(error),
        EngineOver::GaveUp => Err(ChildError::GaveUp),
        EngineOver::Actors(error) => {
            tracing::error!(%error, "the core's actors did not start");
            Err(ChildError::GaveUp)
        }
    }
}

/// Returns the outcome of a process whose front is gone.
fn without_front(error: LinkError) -> Result<(), ChildError> {
    match error {
        LinkError::Closed => Ok(()),
        error => {
            tracing::warn!(%error, "the link to the front is broken");
            Err(ChildError::Broken(error))
        }
    }
}

fn facts_of(loaded: &Loaded) -> Vec<u8> {
    facts::write(&Facts::of(&loaded.model))
}

fn core(config: &EngineConfig, loaded: Loaded) -> Result<Core, StartError> {
    let Loaded { model, executors, constraints, .. } = loaded;
    let names = config.served_names();
    let mut settings = system_config(config, &model.info, model.device_kind, &names);
    settings.recorder = recorder::start(config, &model, &settings.scheduler)?;
    let (codec, grammars) = (model.codec, constraints.grammars);
    Ok(Core { config: settings, executors, codec, grammars })
}

/// Reports that the model cannot be served.
async fn refuse(end: EngineEnd, error: &StartError) -> Result<(), ChildError> {
    end.failed(in_full(error)).await;
    Ok(())
}

/// Returns an error with its causes.
fn in_full(error: &StartError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Takes the link from standard input.
fn link() -> io::Result<UnixStream> {
    let socket = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Fails if it is no socket.
    socket.peer_addr()?;
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Lets the system kill this process when the front is gone. A process that hangs does not notice
/// that its link is closed.
fn die_with_front() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        tracing::warn!(%error, "the system does not end this process with its front");
    }
}

/// Lets the system end this process and not the front when memory is short. The front has the
/// requests, and the next process frees the memory of this one.
fn die_first() {
    #[cfg(target_os = "linux")]
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::debug!(%error, "the system does not prefer to end this process");
    }
}

/// Leaves the KV cache out of core dumps.
fn dump_little() {
    #[cfg(target_os = "linux")]
    if let Err(error) = std::fs::write("/proc/self/coredump_filter", DUMPED) {
        tracing::debug!(%error, "a core dump of this process has its KV cache");
    }
}

/// Ignores signals that end a server, while the returned values live.
fn ignore_signals() -> Vec<Signal> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
}
