//! The end of the server. After a first signal it finishes requests, and a second one ends it at
//! once. It also ends when the engine's supervisor gave up.

use std::{process, time::Duration};

use crate::api::Health;
use crate::{
    cli::{
        CliError,
        failure::{EXIT_INTERRUPTED, EXIT_TERMINATED},
        logging,
    },
    engine::Engine,
    server::{Drain, ServedEngine},
};

/// Interval of the engine's health checks.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the outcome of `load`, or [`CliError::Terminated`] or [`CliError::Interrupted`] if a
/// signal comes first.
pub(super) async fn or_signal<T>(
    load: impl Future<Output = Result<T, CliError>>,
    signals: &mut Signals,
) -> Result<T, CliError> {
    tokio::select! {
        outcome = load => outcome,
        signal = signals.next() => Err(match signal {
            Signal::Terminate => CliError::Terminated,
            Signal::Interrupt => CliError::Interrupted,
        }),
    }
}

/// Completes when the server must stop accepting requests. After that, a signal ends the process.
pub(super) async fn requested(engine: ServedEngine, mut signals: Signals) {
    tokio::select! {
        signal = signals.next() => {
            tracing::info!(%signal, "draining; a second signal ends it at once");
        }
        () = death(&engine) => tracing::error!("the engine's supervisor gave up"),
    }
    tokio::spawn(async move {
        let signal = signals.next().await;
        let open_requests = engine.current().open_requests();
        tracing::warn!(%signal, open_requests, "ended at once; open requests are cut off");
        logging::flush();
        process::exit(signal.exit_code());
    });
}

/// Returns the command's outcome once the server has stopped. Must be called before the engine is
/// shut down.
pub(super) fn outcome(engine: &Engine, drain: Drain) -> Result<(), CliError> {
    match drain {
        _ if engine.health() == Health::Dead => Err(CliError::GaveUp),
        Drain::CutOff { requests } => Err(CliError::CutOff { requests }),
        Drain::Complete => {
            tracing::info!("drained: all requests were answered");
            Ok(())
        }
    }
}

/// Completes when the served engine is dead.
async fn death(engine: &ServedEngine) {
    while engine.current().health() != Health::Dead {
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// The signal that ends the process.
#[cfg_attr(not(unix), allow(dead_code, reason = "there is no SIGTERM"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Interrupt,
}

impl Signal {
    /// Returns 128 + its number, as shells do.
    pub(super) fn exit_code(self) -> i32 {
        i32::from(match self {
            Self::Terminate => EXIT_TERMINATED,
            Self::Interrupt => EXIT_INTERRUPTED,
        })
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

/// SIGTERM and SIGINT. Each signal since the creation is noticed, even if it came before the wait.
#[cfg(unix)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Starts to listen for both.
    ///
    /// # Errors
    /// When the system does not allow listening for signals.
    pub(super) fn new() -> Result<Self, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(CliError::io("cannot listen for signals"));
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }
}

/// Ctrl-C, on systems without signals.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn new() -> Result<Self, CliError> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
