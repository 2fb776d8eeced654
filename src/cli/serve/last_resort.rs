//! Ends a process whose runtime is frozen and cannot handle a signal. A thread with a runtime of
//! its own receives the same signals.

use std::{io, process, sync::mpsc::sync_channel, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::shutdown::{Signal, Signals};
use crate::{
    cli::{CliError, failure::EXIT_GAVE_UP, logging},
    server::health::heartbeat::{Heartbeat, LOOKS_MAX, PERIOD},
};

/// A signal that the runtime did not handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unheard {
    /// The runtime was frozen at the end of the time that requests get to end.
    Drain(Signal),
    /// It was frozen when a second signal asked for an immediate end.
    AtOnce(Signal),
}

impl Unheard {
    fn exit_code(self) -> i32 {
        match self {
            Self::Drain(_) => i32::from(EXIT_GAVE_UP),
            Self::AtOnce(signal) => signal.exit_code(),
        }
    }
}

/// A thread that listens for signals. It ends when this is dropped.
pub(super) struct LastResort(CancellationToken);

impl LastResort {
    /// Listens for signals to a process that computes on `runtime`. `end` is called if `runtime` is
    /// frozen after requests had `limit` to end, or at the second signal.
    ///
    /// # Errors
    /// When the system cannot start a thread, or cannot listen for signals.
    pub(super) fn watch(
        runtime: Handle,
        limit: Duration,
        end: impl FnOnce(Unheard) + Send + 'static,
    ) -> Result<Self, CliError> {
        let cannot = || CliError::io("cannot listen for signals");
        let over = CancellationToken::new();
        let ended = over.clone();
        // A runtime must not be dropped on a thread of another one. That would happen if the thread
        // could not start.
        let (began, has_begun) = sync_channel(1);
        let listen = move || {
            let begin = || {
                let own = Builder::new_current_thread().enable_all().build().map_err(cannot())?;
                let signals = {
                    let _on_it = own.enter();
                    Signals::new()?
                };
                Ok::<_, CliError>((own, signals))
            };
            let (outcome, listener) = match begin() {
                Ok(listener) => (Ok(()), Some(listener)),
                Err(error) => (Err(error), None),
            };
            // The caller waits for it.
            let _ = began.send(outcome);
            let Some((own, signals)) = listener else { return };
            let unheard = unheard(signals, Heartbeat::new(runtime), limit);
            if let Some(unheard) = own.block_on(ended.run_until_cancelled(unheard)) {
                end(unheard);
            }
        };
        let thread = thread::Builder::new().name("playhouse-signals".to_owned());
        thread.spawn(listen).map_err(cannot())?;
        has_begun.recv().map_err(|error| cannot()(io::Error::other(error)))??;
        Ok(Self(over))
    }
}

impl Drop for LastResort {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Ends the process, and reports the reason.
pub(super) fn end_process(unheard: Unheard) {
    match unheard {
        Unheard::Drain(signal) => tracing::error!(
            %signal,
            "the runtime is frozen and shutdown_timeout is over; open requests are cut off"
        ),
        Unheard::AtOnce(signal) => {
            tracing::warn!(%signal, "ended at once; the runtime is frozen, open requests are cut off");
        }
    }
    logging::flush();
    process::exit(unheard.exit_code());
}

/// Returns the signal that the runtime did not handle. A runtime that answers handles it by itself.
async fn unheard(mut signals: Signals, mut heartbeat: Heartbeat, limit: Duration) -> Unheard {
    let first = signals.next().await;
    let mut second = None;
    let mut looks_left = looks(limit);
    loop {
        tokio::select! {
            signal = signals.next(), if second.is_none() => second = Some(signal),
            () = sleep(PERIOD) => {
                let is_frozen = heartbeat.look();
                looks_left = looks_left.saturating_sub(1);
                match second {
                    Some(signal) if is_frozen => return Unheard::AtOnce(signal),
                    None if is_frozen && looks_left == 0 => return Unheard::Drain(first),
                    _ => {}
                }
            }
        }
    }
}

/// Returns the number of checks within `limit`.
fn looks(limit: Duration) -> u32 {
    let looks = limit.as_millis() / PERIOD.as_millis();
    u32::try_from(looks).unwrap_or(u32::MAX).max(LOOKS_MAX)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::{
        process::{Command, id},
        sync::{
            Arc, Barrier,
            mpsc::{Receiver, RecvTimeoutError},
        },
    };

    use tokio::runtime::Runtime;

    use super::*;

    const WORKERS: usize = 2;
    /// Longer than a busy machine needs to detect a frozen runtime.
    const PATIENCE: Duration = Duration::from_secs(30);
    const DRAIN: Duration = Duration::from_secs(4);

    fn watched() -> (Runtime, LastResort, Receiver<Unheard>) {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
        let runtime = runtime.unwrap();
        let (sender, receiver) = sync_channel(1);
        let end = move |unheard| sender.send(unheard).unwrap();
        let watch = LastResort::watch(runtime.handle().clone(), DRAIN, end).unwrap();
        (runtime, watch, receiver)
    }

    /// Blocks all threads of `runtime` until the barrier is waited for.
    fn freeze(runtime: &Runtime) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(WORKERS + 1));
        for _ in 0..WORKERS {
            let barrier = barrier.clone();
            runtime.spawn(async move { barrier.wait() });
        }
        barrier
    }

    fn terminate() {
        let killed = Command::new("kill").args(["-TERM", &id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// One test, because all listeners of the process receive a signal.
    #[test]
    fn a_signal_that_a_frozen_runtime_does_not_take_ends_the_process() {
        let (runtime, watch, ended) = watched();
        terminate();
        let early = ended.recv_timeout(DRAIN + 2 * PERIOD * LOOKS_MAX);
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "a runtime that answers ends by itself");
        let barrier = freeze(&runtime);
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(Unheard::Drain(Signal::Terminate)));
        barrier.wait();
        drop(watch);

        let (runtime, watch, ended) = watched();
        let barrier = freeze(&runtime);
        terminate();
        let early = ended.recv_timeout(DRAIN / 2);
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "requests get their time to end");
        terminate();
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(Unheard::AtOnce(Signal::Terminate)));
        barrier.wait();
        drop(watch);

        let codes = [Unheard::Drain, Unheard::AtOnce].map(|how| how(Signal::Terminate).exit_code());
        assert_eq!(codes, [70, 143]);
    }
}
