//! A bar on a terminal while a model loads. A thread of its own draws it, so a stopped terminal
//! blocks only that thread.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Condvar, Mutex};

use super::style::shows_bars;
use crate::engine::StartProgress;

/// Loading that takes less time shows no bar.
const SHORT: Duration = Duration::from_millis(400);
/// How often the bar is drawn.
const PERIOD: Duration = Duration::from_millis(100);
/// Longest wait at the end of loading until the bar is cleared.
const CLEAR_LIMIT: Duration = Duration::from_millis(500);

/// A bar that appears if loading takes long. It is cleared when it is dropped.
pub(super) struct LoadBar(Arc<Shared>);

/// The state that loading and the bar's thread share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Option<Phase>,
    is_over: bool,
    is_cleared: bool,
}

impl LoadBar {
    /// Returns a bar on standard error, if that is a terminal.
    pub(super) fn new() -> Self {
        match shows_bars() {
            true => Self::drawn(draw_on(ProgressBar::hidden())),
            false => Self::hidden(),
        }
    }

    fn hidden() -> Self {
        let shared = Shared::default();
        shared.state.lock().is_cleared = true;
        Self(Arc::new(shared))
    }

    /// Returns a bar that `draw` draws. Called without a phase, `draw` clears the bar.
    fn drawn(draw: impl FnMut(Option<Phase>) + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("playhouse-bar".to_owned());
        match thread.spawn(move || of_thread.draw(draw)) {
            Ok(_) => Self(shared),
            // Loading continues without a bar.
            Err(_) => Self::hidden(),
        }
    }

    /// Returns a function that stores the progress and never waits for the terminal.
    pub(super) fn listener(&self) -> impl Fn(StartProgress) + Send + Sync + use<> {
        let shared = self.0.clone();
        move |progress| shared.state.lock().phase = Some(Phase::of(progress))
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_over = true;
        self.0.changed.notify_all();
        let deadline = Instant::now() + CLEAR_LIMIT;
        while !state.is_cleared {
            if self.0.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }
}

impl Shared {
    /// Draws until loading is over.
    fn draw(&self, mut draw: impl FnMut(Option<Phase>)) {
        let mut pause = SHORT;
        while !self.is_over_after(pause) {
            pause = PERIOD;
            let phase = self.state.lock().phase.clone();
            if phase.is_some() {
                draw(phase);
            }
        }
        draw(None);
        self.state.lock().is_cleared = true;
        self.changed.notify_all();
    }

    fn is_over_after(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        let deadline = Instant::now() + pause;
        while !state.is_over && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        state.is_over
    }
}

/// The current work. `bytes` are the bytes done and the bytes in total, if they measure the
/// progress.
#[derive(Clone)]
struct Phase {
    message: String,
    bytes: Option<(u64, u64)>,
}

impl Phase {
    fn of(progress: StartProgress) -> Self {
        let without_bytes = |message: &str| Self { message: message.to_owned(), bytes: None };
        match progress {
            StartProgress::Download(download) => Self {
                message: format!(
                    "fetching file {} of {}",
                    (download.files + 1).min(download.files_total),
                    download.files_total
                ),
                bytes: Some((download.bytes, download.bytes_total)),
            },
            StartProgress::Tokenizer => without_bytes("reading the tokenizer"),
            // The last tensor is read, but not yet stored completely.
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

/// Returns a function that draws a bar of bytes. Without bytes it shows the elapsed time, because a
/// full bar would look finished.
fn draw_on(bar: ProgressBar) -> impl FnMut(Option<Phase>) {
    move |phase| {
        let Some(Phase { message, bytes }) = phase else { return bar.finish_and_clear() };
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
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
        bar.tick();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::model::LoadProgress;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn no_bar_is_full_before_loading_ends() {
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

    #[test]
    fn the_bar_is_cleared_at_the_end() {
        let (drawn, was_drawn) = sync_channel(1000);
        let draw = move |phase: Option<Phase>| {
            drawn.send(phase.map(|phase| phase.message)).unwrap();
        };
        let bar = LoadBar::drawn(draw);
        bar.listener()(StartProgress::Tokenizer);
        let message = was_drawn.recv_timeout(PATIENCE).unwrap();
        assert_eq!(message.as_deref(), Some("reading the tokenizer"));
        drop(bar);
        assert_eq!(was_drawn.iter().last(), Some(None));
    }

    #[test]
    fn a_stopped_terminal_does_not_block_loading() {
        let (drawn, is_drawing) = sync_channel(1);
        let (resume, is_resumed) = sync_channel::<()>(1);
        let bar = LoadBar::drawn(move |_| {
            drawn.try_send(()).ok();
            is_resumed.recv().ok();
        });
        let listener = bar.listener();
        listener(StartProgress::Tokenizer);
        is_drawing.recv_timeout(PATIENCE).unwrap();
        // Each of these calls would have waited for the terminal.
        (0..100).for_each(|_| listener(StartProgress::Grammars));
        drop(bar);
        drop(resume);
    }
}
