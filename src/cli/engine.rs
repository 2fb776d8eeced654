//! A running engine for a command: the runtime, the model's loading, and its end.

use std::{error::Error, io, num::NonZero, sync::Arc, thread, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::RwLock;
use tokio::task::JoinHandle;

use super::{CliError, file_limit, style::shows_bars};
use crate::api::HandlerProfiler;
use crate::{
    config::EngineConfig,
    engine::{Engine, StartProgress},
};

/// Threads beside the runtime's workers and those that compute: the device's, the watchdog's, those
/// that grammars are compiled on and that the runtime blocks on.
const OTHER_THREADS: usize = 12;

/// What takes less needs no bar.
const SHORT: Duration = Duration::from_millis(400);

/// Runs a command's work on a runtime for the actors. The model computes on threads of its own, so
/// few are enough here. Does not wait for what the work leaves behind: an interrupted load, say.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let workers = cores.clamp(2, 8);
    require_threads(workers + cores + OTHER_THREADS)
        .map_err(CliError::io("cannot start the threads of the program"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(CliError::io("cannot start the runtime"))?;
    let outcome = runtime.block_on(async {
        file_limit::survive()?;
        work.await
    });
    runtime.shutdown_background();
    outcome
}

/// Starts `count` threads at once and lets them end. The runtime panics where it gets no thread, and
/// waits for ever where it gets too few: what the system refuses is asked for before.
fn require_threads(count: usize) -> io::Result<()> {
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let mut threads = Vec::with_capacity(count);
    for _ in 0..count {
        let gate = Arc::clone(&gate);
        let started = thread::Builder::new().spawn(move || drop(gate.read()));
        threads.push(started.map_err(|error| {
            let started = threads.len();
            io::Error::new(error.kind(), format!("{started} of {count} were started: {error}"))
        })?);
    }
    drop(closed);
    for thread in threads {
        // It does nothing that could panic.
        let _ = thread.join();
    }
    rayon::ThreadPoolBuilder::new().build_global().or_else(|error| match error.source() {
        // They run already.
        None => Ok(()),
        Some(_) => Err(io::Error::other(error)),
    })
}

/// Loads the model and starts the engine, with a progress bar on a terminal.
pub(crate) async fn start(config: EngineConfig) -> Result<Engine, CliError> {
    let bar = LoadBar::new();
    let shown = bar.shown.clone();
    let engine = Engine::spawn(config, move |progress| show(&shown, progress)).await;
    Ok(engine?)
}

/// The same, for an engine whose actors tell how long they take.
pub(crate) async fn start_profiled(
    config: EngineConfig,
    handlers: Arc<dyn HandlerProfiler>,
) -> Result<Engine, CliError> {
    let bar = LoadBar::new();
    let shown = bar.shown.clone();
    let progress = move |progress| show(&shown, progress);
    let engine = Engine::spawn_profiled(config, progress, handlers).await;
    Ok(engine?)
}

/// A bar on a terminal, if loading takes so long that one asks; gone when dropped.
struct LoadBar {
    shown: ProgressBar,
    reveal: Option<JoinHandle<()>>,
}

impl LoadBar {
    fn new() -> Self {
        let shown = ProgressBar::hidden();
        let bar = shown.clone();
        let reveal = shows_bars().then(|| {
            tokio::spawn(async move {
                tokio::time::sleep(SHORT).await;
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(100));
            })
        });
        Self { shown, reveal }
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        if let Some(reveal) = self.reveal.take() {
            reveal.abort();
        }
        self.shown.finish_and_clear();
    }
}

/// What is being done, and how many bytes of how many are done, where that says how far it is.
struct Phase {
    message: String,
    bytes: Option<(u64, u64)>,
}

impl Phase {
    fn of(progress: StartProgress) -> Self {
        let without_bytes = |message: &str| Self { message: message.to_owned(), bytes: None };
        match progress {
            StartProgress::Tokenizer => without_bytes("reading the tokenizer"),
            // The last tensor is read, but not all of it is kept yet.
            StartProgress::Weights(weights) if weights.bytes >= weights.bytes_total => {
                without_bytes("finishing the weights")
            }
            StartProgress::Weights(weights) => {
                let cached = ["packing weights", "mapping packed weights"];
                let message = cached[usize::from(weights.is_cached)].to_owned();
                Self { message, bytes: Some((weights.bytes, weights.bytes_total)) }
            }
            StartProgress::WarmUp { steps, steps_total } => {
                without_bytes(&format!("warming up: step {} of {steps_total}", steps + 1))
            }
            StartProgress::Grammars => without_bytes("preparing the vocabulary for grammars"),
            StartProgress::KvCache { .. } => without_bytes("allocating the KV cache"),
        }
    }
}

/// A bar of bytes where there is one; elsewhere the time, as a full bar would look done.
fn show(bar: &ProgressBar, progress: StartProgress) {
    let Phase { message, bytes } = Phase::of(progress);
    let template = match bytes {
        Some(_) => "{msg:<22} {bar:24} {bytes} of {total_bytes}",
        None => "{msg} ({elapsed})",
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if let Some((done, total)) = bytes {
        bar.set_length(total);
        bar.set_position(done);
    }
    bar.set_message(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LoadProgress;

    #[test]
    fn no_bar_is_full_while_something_is_done() {
        let weights = |bytes| {
            StartProgress::Weights(LoadProgress { bytes, bytes_total: 9, ..Default::default() })
        };
        assert_eq!(Phase::of(weights(8)).bytes, Some((8, 9)));
        let later = [
            (weights(9), "finishing the weights"),
            (StartProgress::Tokenizer, "reading the tokenizer"),
            (StartProgress::WarmUp { steps: 0, steps_total: 2 }, "warming up: step 1 of 2"),
            (StartProgress::Grammars, "preparing the vocabulary for grammars"),
            (StartProgress::KvCache { bytes: 1 }, "allocating the KV cache"),
        ];
        for (progress, message) in later {
            let phase = Phase::of(progress);
            assert_eq!((phase.message.as_str(), phase.bytes), (message, None));
        }
    }
}
