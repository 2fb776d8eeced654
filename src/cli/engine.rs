//! A running engine for a command: the runtime, the model's loading, and its end.

use std::{num::NonZero, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use playhouse_actors::ports::HandlerProfiler;
use tokio::task::JoinHandle;

use super::{CliError, style::shows_bars};
use crate::{
    config::EngineConfig,
    engine::{Engine, StartProgress},
};

/// What takes less needs no bar.
const SHORT: Duration = Duration::from_millis(400);

/// Runs a command's work on a runtime for the actors. The model computes on threads of its own, so
/// few are enough here. Does not wait for what the work leaves behind: an interrupted load, say.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 8))
        .enable_all()
        .build()
        .map_err(CliError::io("cannot start the runtime"))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
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
        let template = "{msg:<21} {bar:24} {bytes} of {total_bytes}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let shown = ProgressBar::hidden().with_style(style);
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

fn show(bar: &ProgressBar, progress: StartProgress) {
    match progress {
        StartProgress::Tokenizer => bar.set_message("reading the tokenizer"),
        StartProgress::Weights(weights) => {
            let cached = ["packing weights", "mapping packed weights"];
            bar.set_message(cached[usize::from(weights.is_cached)]);
            bar.set_length(weights.bytes_total.max(weights.bytes));
            bar.set_position(weights.bytes);
        }
        StartProgress::WarmUp { steps, steps_total } => {
            bar.set_message(format!("warming up {steps}/{steps_total}"));
        }
        StartProgress::KvCache { .. } => bar.set_message("allocating KV cache"),
    }
}
