//! When the server ends: a first signal lets it finish, a second one does not wait, and an engine
//! whose supervisor gave up is not served any longer.

use std::{
    io, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use playhouse_actors::shell::Health;

use crate::{cli::CliError, engine::Engine};

/// How often the engine is asked whether it lives.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// 128 + SIGINT: what a process interrupted at once exits with.
const EXIT_ABORTED: i32 = 130;

/// Why and when the server ends.
pub(super) struct End {
    gave_up: Arc<AtomicBool>,
}

impl End {
    pub(super) fn new() -> Self {
        Self { gave_up: Arc::default() }
    }

    /// Completes when the server is to stop taking requests. From then on a signal ends the
    /// process.
    ///
    /// # Errors
    /// When the system does not let us listen for signals.
    pub(super) fn requested(
        &self,
        engine: Engine,
    ) -> Result<impl Future<Output = ()> + use<>, CliError> {
        let mut signals = Signals::new().map_err(CliError::io("cannot listen for signals"))?;
        let gave_up = Arc::clone(&self.gave_up);
        Ok(async move {
            tokio::select! {
                name = signals.next() => {
                    tracing::info!(signal = name, "draining; a second signal ends it at once");
                    tokio::spawn(async move {
                        signals.next().await;
                        process::exit(EXIT_ABORTED);
                    });
                }
                () = death(&engine) => gave_up.store(true, Ordering::Release),
            }
        })
    }

    /// How the command ends.
    pub(super) fn outcome(&self) -> Result<(), CliError> {
        match self.gave_up.load(Ordering::Acquire) {
            true => Err(CliError::GaveUp),
            false => Ok(()),
        }
    }
}

/// Completes when the engine is dead.
async fn death(engine: &Engine) {
    while engine.health() != Health::Dead {
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// SIGTERM and SIGINT. Whatever comes from its making on is noticed, also while nobody waits.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Ctrl-C, where there are no signals.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
