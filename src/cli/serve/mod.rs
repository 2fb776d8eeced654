//! `playhouse serve`: the engine behind HTTP.

#[cfg(unix)]
mod activation;
mod banner;
#[cfg(target_os = "linux")]
mod engine_usage;
#[cfg(unix)]
mod inherited;
mod last_resort;
pub(super) mod metrics;
mod shutdown;
mod stats;
#[cfg(unix)]
mod upgrade;

use std::time::Duration;

use clap::Args;
use tokio::{runtime::Handle, sync::oneshot};

#[cfg(unix)]
use self::{inherited::Inherited, upgrade::Upgrader};
use self::{
    last_resort::{LastResort, end_process},
    shutdown::Signals,
};
use super::{CliError, engine, flags::AllFlags};
use crate::{
    config::{Config, EngineConfig, Key, LogSettings, Origin, ServerSettings, layer::Entry},
    engine::{Engine, JournalSharing},
    server::{self, Handover, Link, Listener, ServedEngine, ServerError},
};

/// This system hands no sockets over.
#[cfg(not(unix))]
enum Inherited {}

const EXAMPLES: &str = "\
Examples:
  playhouse serve                                  The demo model on 127.0.0.1:8000
  playhouse serve Qwen/Qwen3-0.6B                  A model by name, fetched if it is not there
  playhouse serve models/qwen3 --served-model-name qwen3 --port 8100
  playhouse serve models/qwen3 --dtype bfloat16 --max-model-len 4K --kv-cache-memory-bytes 2GiB
  playhouse serve --config playhouse.toml --log-level debug
  PLAYHOUSE_API_KEY=secret playhouse serve --host 0.0.0.0

SIGTERM or SIGINT ends it once all requests are answered; a second one ends it at once.
Exit codes: 0 all requests were answered, 1 some were cut off by --shutdown-timeout or the server
failed, 70 the engine's supervisor gave up or the runtime was frozen at the end of
--shutdown-timeout, 130 or 143 ended at once by SIGINT or SIGTERM.";

/// Serve a model over HTTP, as OpenAI's API with vLLM's extensions.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Folder of a Hugging Face model, a GGUF file, or a name (org/name); the same as --model
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    folder: Option<String>,
    #[command(flatten)]
    settings: AllFlags,
}

impl ServeArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut all = self.settings.entries();
        all.extend(self.folder.iter().map(|folder| Entry {
            key: Key::new("engine", "model"),
            value: folder.clone().into(),
            origin: Origin::Flag("MODEL".to_owned()),
        }));
        all
    }
}

/// Loads the model, in this process or in an engine process.
async fn start(
    config: EngineConfig,
    log: &LogSettings,
    server: &ServerSettings,
    sharing: JournalSharing,
) -> Result<Engine, CliError> {
    match server.single_process {
        true => engine::start_with_journal(config, sharing).await,
        false => engine::start_process(config, log, server.spare_engine, sharing).await,
    }
}

/// Serves until a signal, until the engine's supervisor gives up, or until another process has
/// taken over.
#[cfg(unix)]
pub(crate) fn run(config: Config) -> Result<(), CliError> {
    let inherited = Inherited::take()?;
    let outcome = serve(config, inherited.as_ref());
    if let (Err(error), Some(inherited)) = (&outcome, &inherited) {
        inherited.failed(error);
    }
    outcome
}

/// Serves until a signal, or until the engine's supervisor gives up.
#[cfg(not(unix))]
pub(crate) fn run(config: Config) -> Result<(), CliError> {
    serve(config, None)
}

/// Returns the listener: of a socket that another process has opened, or of a new one.
async fn listener(
    server: &ServerSettings,
    inherited: Option<&Inherited>,
) -> Result<Listener, CliError> {
    match inherited {
        #[cfg(unix)]
        Some(inherited) => inherited.listener(server),
        #[cfg(not(unix))]
        Some(never) => match *never {},
        None => Ok(Listener::bind(server).await?),
    }
}

/// Returns how this process shares its folder of journals with the process that started it.
fn sharing(inherited: Option<&Inherited>) -> JournalSharing {
    match inherited {
        #[cfg(unix)]
        Some(inherited) if inherited.is_of_server() => JournalSharing::After(inherited.starter()),
        _ => JournalSharing::Alone,
    }
}

/// Returns whether the socket comes from a server that ends.
fn is_of_server(inherited: &Inherited) -> bool {
    #[cfg(unix)]
    return inherited.is_of_server();
    #[cfg(not(unix))]
    match *inherited {}
}

fn serve(config: Config, inherited: Option<&Inherited>) -> Result<(), CliError> {
    engine::run(async {
        // Before all slow work: in a container, the default action of signals does not end the
        // first process.
        let mut signals = Signals::new()?;
        let limit = Duration::from_secs(config.server.shutdown_timeout_secs);
        let _last_resort = LastResort::watch(Handle::current(), limit, end_process)?;
        // A port in use is reported now, not after the model is loaded.
        let server = config.server_with_limits();
        let listener = listener(&server, inherited).await?;
        let server = listener.settings(server).map_err(ServerError::Io)?;
        server
            .validate_chaos(&config.engine)
            .map_err(|invalid| CliError::Usage(invalid.to_string()))?;
        // The metrics need the model's context.
        let files = engine::with_files(config.engine);
        let engine_config = shutdown::or_signal(files, &mut signals).await?;
        let metrics = metrics::install(&engine_config)?;
        let sharing = sharing(inherited);
        let engine = start(engine_config, &config.log, &server, sharing);
        let engine = shutdown::or_signal(engine, &mut signals).await?;
        let stats = tokio::spawn(stats::log(metrics.clone(), config.log.stats_interval_secs));
        banner::show(&engine, &server, &listener);
        let engine = ServedEngine::from(engine);
        let upkeep = tokio::spawn(metrics::keep_up(metrics.clone(), engine.clone()));
        let mut handover = Handover::default();
        #[cfg(unix)]
        let upgrading = Upgrader::begin(&listener, &mut handover)?;
        let (sender, listening) = oneshot::channel();
        handover.listening = Some(sender);
        let (link, predecessor) = oneshot::channel();
        handover.predecessor = inherited.filter(|one| is_of_server(one)).map(|_| predecessor);
        let requested = shutdown::requested(engine.clone(), signals);
        let requested = until(requested, inherited, listening, link);
        let served =
            server::serve_with(listener, engine.clone(), server, metrics, requested, handover);
        let served = served.await;
        let engine = engine.current();
        let outcome = served.map_err(CliError::from);
        let outcome = outcome.and_then(|drain| shutdown::outcome(&engine, drain));
        upkeep.abort();
        stats.abort();
        #[cfg(unix)]
        drop(upgrading);
        engine.shutdown().await;
        outcome
    })
}

/// Completes when `requested` does. Reports to the process that started this one that it listens,
/// and sends the connection to that process to `link`.
/// If that process has gone meanwhile, completes, too.
async fn until(
    requested: impl Future<Output = ()>,
    inherited: Option<&Inherited>,
    listening: oneshot::Receiver<()>,
    link: oneshot::Sender<Link>,
) {
    #[cfg(unix)]
    let report = async {
        let Some(inherited) = inherited else { return std::future::pending().await };
        match inherited.report(listening).await {
            Ok(connection) => {
                // Without a receiver, the server ends already.
                let _ = connection.map(|connection| link.send(connection));
                std::future::pending().await
            }
            Err(error) => tracing::warn!(%error, "the process before has ended, so this one ends"),
        }
    };
    #[cfg(not(unix))]
    let report = async {
        let _ = (inherited, listening, link);
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = requested => {}
        () = report => {}
    }
}
