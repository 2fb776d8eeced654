//! A process that has loaded its model and waits until it is needed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::{
    peer::{End, LoadError, Loaded, Loading},
    process::EngineLauncher,
};

/// Pause before a spare process that has ended is replaced.
const REPLACE_PAUSE: Duration = Duration::from_secs(1);

/// A spare process. A drop ends it.
#[derive(Debug)]
pub(crate) struct Spare {
    wanted: watch::Sender<bool>,
    task: JoinHandle<Result<Loaded, LoadError>>,
    is_ready: Arc<AtomicBool>,
}

impl Spare {
    /// Starts a process and keeps it waiting. It is replaced if it ends. Must be called within a
    /// tokio runtime.
    pub(crate) fn begin(launcher: Arc<dyn EngineLauncher>, silence_max: Duration) -> Self {
        let (wanted, is_wanted) = watch::channel(false);
        let is_ready = Arc::<AtomicBool>::default();
        let task = tokio::spawn(wait(launcher, silence_max, is_wanted, Arc::clone(&is_ready)));
        Self { wanted, task, is_ready }
    }

    /// Returns the flag that says whether the process lives and has loaded its model. It stays set
    /// when the process is taken.
    pub(crate) fn readiness(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ready)
    }

    /// Returns whether the process lives and has loaded its model.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns the process. Waits for its load if that has not ended.
    ///
    /// # Errors
    /// [`LoadError`] if it did not load its model.
    pub(crate) async fn take(mut self) -> Result<Loaded, LoadError> {
        self.wanted.send_replace(true);
        let gone = |error: tokio::task::JoinError| LoadError::Ended(format!("is gone: {error}"));
        (&mut self.task).await.map_err(gone)?
    }
}

#[cfg(test)]
impl Spare {
    /// Returns a spare process of a test, which cannot be taken.
    pub(crate) fn for_test(is_ready: Arc<AtomicBool>) -> Self {
        let (wanted, _) = watch::channel(false);
        Self { wanted, task: tokio::spawn(std::future::pending()), is_ready }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Loads a process, and returns it when it is wanted. Returns the error of a load only then. A
/// process that has ended while it waited is loaded anew, also if it is wanted by now. Its end
/// counts neither as a failed load nor as another death of the one that serves. An end after a load
/// that was wanted is an error, because such loads would follow each other without a limit.
async fn wait(
    launcher: Arc<dyn EngineLauncher>,
    silence_max: Duration,
    mut wanted: watch::Receiver<bool>,
    is_ready: Arc<AtomicBool>,
) -> Result<Loaded, LoadError> {
    let pause = launcher.spare_pause();
    if !pause.is_zero() {
        // One that is wanted before is loaded at once.
        let _ = tokio::time::timeout(pause, wanted.wait_for(|wanted| *wanted)).await;
    }
    loop {
        let is_wanted = *wanted.borrow();
        let error = match load(&*launcher, silence_max).await {
            Ok(mut spare) => {
                is_ready.store(true, Ordering::Release);
                match waiting(&mut spare, &mut wanted).await {
                    Ok(()) => return Ok(spare),
                    Err(end) => {
                        is_ready.store(false, Ordering::Release);
                        if is_wanted {
                            return Err(end.into());
                        }
                        end.into()
                    }
                }
            }
            Err(error) if *wanted.borrow() => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(%error, "the spare engine process is lost");
        // One that is wanted meanwhile is loaded at once.
        let _ = tokio::time::timeout(REPLACE_PAUSE, wanted.wait_for(|wanted| *wanted)).await;
    }
}

async fn load(launcher: &dyn EngineLauncher, silence_max: Duration) -> Result<Loaded, LoadError> {
    let began = Instant::now();
    let loaded = Loading::begin(launcher, silence_max)?.loaded(|_| ()).await?;
    tracing::debug!(took = ?began.elapsed(), "a spare engine process has loaded its model");
    Ok(loaded)
}

/// Watches a loaded process until it is wanted.
///
/// # Errors
/// The end of the process.
async fn waiting(spare: &mut Loaded, wanted: &mut watch::Receiver<bool>) -> Result<(), End> {
    loop {
        tokio::select! {
            biased;
            // Before the wish: one that has ended must not be returned.
            news = spare.peer.next() => drop(news?),
            // Without the other end, this task is about to be aborted.
            _ = wanted.wait_for(|wanted| *wanted) => return Ok(()),
        }
    }
}
