//! Ctrl-C while the engine works.

use super::CliError;

/// The outcome of `work`, or [`CliError::Interrupted`] if SIGINT comes first; `work` is dropped
/// then, which aborts the requests whose streams it holds.
pub(crate) async fn or_interrupt<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::select! {
        outcome = work => outcome,
        signal = tokio::signal::ctrl_c() => {
            signal.map_err(CliError::io("cannot listen for SIGINT"))?;
            Err(CliError::Interrupted)
        }
    }
}
