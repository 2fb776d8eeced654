//! The limit on the size of files (`ulimit -f`). A write beyond it fails with an error, which its
//! writer reports. Without this module, the system would end the process.

use super::CliError;

/// Shortest interval between log lines about the limit, because the file of the log may be the full
/// one.
#[cfg(unix)]
const LOG_INTERVAL: std::time::Duration = std::time::Duration::from_secs(60);

/// Logs each SIGXFSZ, which would otherwise end the process. Must be called within a runtime.
#[cfg(unix)]
pub(crate) fn survive() -> Result<(), CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let excess = signal(SignalKind::from_raw(libc::SIGXFSZ));
    let mut excess = excess.map_err(CliError::io("cannot listen for SIGXFSZ"))?;
    tokio::spawn(async move {
        while excess.recv().await.is_some() {
            tracing::error!(
                "a file has reached the limit on the size of files (ulimit -f): the rest is lost"
            );
            tokio::time::sleep(LOG_INTERVAL).await;
        }
    });
    Ok(())
}

/// Does nothing, because other systems have no such limit.
#[cfg(not(unix))]
pub(crate) fn survive() -> Result<(), CliError> {
    Ok(())
}
