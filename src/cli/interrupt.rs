//! Ctrl-C while the engine works.

use super::CliError;

/// Returns the outcome of `work`, or [`CliError::Interrupted`] if SIGINT comes first. Then `work`
/// is dropped, which aborts the requests whose streams it holds.
pub(crate) async fn or_interrupt<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        outcome = work => outcome,
        () = interrupts.next() => Err(CliError::Interrupted),
    }
}

/// All SIGINTs from now on. Those that come between two calls are not lost, but count as one.
pub(crate) struct Interrupts {
    #[cfg(unix)]
    signals: tokio::signal::unix::Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self, CliError> {
        Ok(Self {
            #[cfg(unix)]
            signals: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
                .map_err(CliError::io("cannot listen for SIGINT"))?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        let came = self.signals.recv().await.is_some();
        #[cfg(not(unix))]
        let came = tokio::signal::ctrl_c().await.is_ok();
        if !came {
            // There will be no further signal.
            std::future::pending::<()>().await;
        }
    }
}
