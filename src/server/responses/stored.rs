//! A response that is kept, and what it goes on from.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{items::Item, response::Response};

/// What was said to the model, and what it did. Responses that go on from it share it.
pub(super) struct Turn {
    input: Arc<Vec<Item>>,
    output: Arc<Vec<Item>>,
    _weight: Weight,
}

/// A response, as far as it is, and the conversation that it belongs to.
pub(super) struct Stored {
    /// Whether it goes on without its client.
    is_background: bool,
    /// Whether its events are kept.
    is_streamed: bool,
    /// The turns before it.
    history: Vec<Arc<Turn>>,
    input: Arc<Vec<Item>>,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
    weight: Weight,
}

/// How far a response is.
pub(super) struct Progress {
    pub(super) response: Response,
    /// Its events so far, as they are sent; empty where they are not kept.
    pub(super) frames: Vec<Bytes>,
    /// There once it is over.
    turn: Option<Arc<Turn>>,
}

/// Bytes that count towards the store's limit until they are dropped.
pub(super) struct Weight {
    bytes: AtomicUsize,
    total: Arc<AtomicUsize>,
}

impl Stored {
    /// One that is in `history`'s conversation and was asked `input`.
    pub(super) fn new(
        response: Response,
        is_streamed: bool,
        history: Vec<Arc<Turn>>,
        input: Arc<Vec<Item>>,
        weight: Weight,
    ) -> Self {
        let is_background = response.asked.background;
        let progress = Progress { response, frames: Vec::new(), turn: None };
        let stored = Self {
            is_background,
            is_streamed,
            history,
            input,
            progress: watch::Sender::new(progress),
            cancel: CancellationToken::new(),
            weight,
        };
        stored.update(None, Vec::new());
        stored
    }

    /// Goes on to `response`, if that has changed, with what was told since.
    pub(super) fn update(&self, response: Option<&Response>, frames: Vec<Bytes>) {
        self.progress.send_modify(|progress| {
            if let Some(response) = response {
                progress.response = response.clone();
            }
            if self.is_streamed {
                progress.frames.extend(frames);
            }
            if progress.response.status.is_over() && progress.turn.is_none() {
                self.close(progress);
            }
        });
    }

    /// From here on, others can go on from it.
    fn close(&self, progress: &mut Progress) {
        let output = progress.response.output.clone();
        let weight = self.weight.another(json_len(&*self.input) + json_len(&*output));
        progress.turn = Some(Arc::new(Turn { input: self.input.clone(), output, _weight: weight }));
        let frames: usize = progress.frames.iter().map(Bytes::len).sum();
        let history = size_of_val(self.history.as_slice());
        self.weight.set(json_len(&*progress.response.asked) + frames + history);
    }

    /// The response as it is now.
    pub(super) fn response(&self) -> Response {
        self.progress.borrow().response.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.progress.borrow().response.status.is_over()
    }

    pub(super) fn is_background(&self) -> bool {
        self.is_background
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// The turns that a response after this one goes on from; none before it is over.
    pub(super) fn conversation(&self) -> Option<Vec<Arc<Turn>>> {
        let turn = self.progress.borrow().turn.clone()?;
        Some(self.history.iter().cloned().chain([turn]).collect())
    }

    /// What the model was given: all that was said before, and the input.
    pub(super) fn given(&self) -> impl Iterator<Item = &Item> {
        self.history.iter().flat_map(|turn| turn.items()).chain(self.input.iter())
    }

    /// The item of that name, if it is one of this response's own.
    pub(super) fn item(&self, id: &str) -> Option<Item> {
        let output = self.progress.borrow().response.output.clone();
        self.input.iter().chain(output.iter()).find(|item| item.id() == id).cloned()
    }

    /// Follows it as it goes on.
    pub(super) fn follow(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Asks for its end.
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Completes when somebody has asked for its end.
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl Turn {
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.input.iter().chain(self.output.iter())
    }
}

impl Weight {
    /// Nothing yet, of this total.
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { bytes: AtomicUsize::new(0), total }
    }

    fn another(&self, bytes: usize) -> Self {
        let weight = Self::new(self.total.clone());
        weight.set(bytes);
        weight
    }

    fn set(&self, bytes: usize) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes of `value` as JSON: about what it takes in memory.
fn json_len(value: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    // Counting does not fail, and what does not serialize weighs what it had until then.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
