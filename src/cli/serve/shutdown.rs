//! When the server ends: a first signal lets it finish, a second one does not wait, and an engine
//! whose supervisor gave up is not served any longer.

use std::{
    process,
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
    engine: Engine,
    gave_up: Arc<AtomicBool>,
}

impl End {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, gave_up: Arc::default() }
    }

    /// Completes when the server is to stop taking requests. From then on a signal ends the
    /// process.
    pub(super) fn requested(&self) -> impl Future<Output = ()> + use<> {
        let (engine, gave_up) = (self.engine.clone(), Arc::clone(&self.gave_up));
        async move {
            tokio::select! {
                name = signal() => {
                    tracing::info!(signal = name, "draining; a second signal ends it at once");
                    tokio::spawn(async {
                        signal().await;
                        process::exit(EXIT_ABORTED);
                    });
                }
                () = death(&engine) => gave_up.store(true, Ordering::Release),
            }
        }
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

/// Completes on SIGINT or SIGTERM, with its name.
#[cfg(unix)]
async fn signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = tokio::signal::ctrl_c() => "SIGINT",
        },
        Err(error) => {
            tracing::warn!(%error, "SIGTERM will not be noticed");
            interrupt().await
        }
    }
}

#[cfg(not(unix))]
async fn signal() -> &'static str {
    interrupt().await
}

/// Completes on SIGINT.
async fn interrupt() -> &'static str {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    "SIGINT"
}
