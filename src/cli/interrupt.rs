//! Ctrl-C while the engine works.

use super::CliError;

/// The outcome of `work`, or [`CliError::Interrupted`] if SIGINT comes first; `work` is dropped
/// then, which aborts the requests whose streams it holds.
pub(crate) async fn or_interrupt<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        outcome = work => outcome,
        () = interrupts.next() => Err(CliError::Interrupted),
    }
}

/// Every SIGINT from now on; those that come between two looks are not lost, but counted as one.
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

    /// The next one.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        let came = self.signals.recv().await.is_some();
        #[cfg(not(unix))]
        let came = tokio::signal::ctrl_c().await.is_ok();
        if !came {
            // There will be none any more.
            std::future::pending::<()>().await;
        }
    }
}
