//! Files that are read again when they change, and on SIGHUP.

use std::{path::PathBuf, time::Duration, time::SystemTime};

use tokio::time::sleep;

/// Interval between two checks of the files.
const INTERVAL: Duration = Duration::from_secs(2);

/// The facts that distinguish one state of a file from the next. `None` while it does not exist.
type Stamp = Option<(SystemTime, u64)>;

/// Calls `reload` each time one of `paths` has changed, and on SIGHUP. Changes between this call
/// and the first poll of the future count, too. Without paths it never completes, and SIGHUP keeps
/// its default effect.
pub(in crate::server) fn on_change(
    paths: Vec<PathBuf>,
    reload: impl FnMut(),
) -> impl Future<Output = ()> {
    let hangup = (!paths.is_empty()).then(Hangup::new);
    let before = stamps(&paths);
    async move {
        match hangup {
            Some(hangup) => watch(paths, before, hangup, reload).await,
            None => std::future::pending().await,
        }
    }
}

async fn watch(
    paths: Vec<PathBuf>,
    mut before: Vec<Stamp>,
    mut hangup: Hangup,
    mut reload: impl FnMut(),
) {
    loop {
        let asked = tokio::select! {
            () = hangup.recv() => true,
            () = sleep(INTERVAL) => false,
        };
        let now = stamps(&paths);
        if asked || now != before {
            reload();
        }
        before = now;
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.modified().ok()?, file.len()))
    };
    paths.iter().map(stamp).collect()
}

/// Receives SIGHUP, on systems that have it.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    #[cfg(unix)]
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::hangup());
        let signal = signal.inspect_err(|error| tracing::warn!(%error, "SIGHUP is not heard"));
        Self { signal: signal.ok() }
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self {}
    }

    async fn recv(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}
