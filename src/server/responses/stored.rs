//! A stored response, and the turns that it continues.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    index::ItemIndex,
    items::{Item, Items},
    response::{Asked, Response},
    weight::Weight,
};
use crate::api::Lease;
use crate::server::memory::json::json_bytes;

/// Memory of an event beside its bytes: its place in the list, and an allocation.
const FRAME_BYTES: usize = size_of::<Bytes>() + 32;

/// The items that the model was given, and its output. Responses that continue it share it.
pub(super) struct Turn {
    input: Arc<Items>,
    output: Arc<Items>,
    output_index: ItemIndex,
    _weight: Weight,
}

/// A response in its current state, and the conversation that it belongs to.
pub(in crate::server) struct Stored {
    /// Whether it runs without its client.
    is_background: bool,
    /// Whether its events are stored.
    is_streamed: bool,
    /// The turns before it.
    history: Vec<Arc<Turn>>,
    input: Arc<Items>,
    input_index: ItemIndex,
    /// Bytes of the request's fields.
    asked_bytes: usize,
    /// Bytes of the input, with its index.
    input_bytes: usize,
    /// Bytes of the list of turns before it.
    history_bytes: usize,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
    weight: Weight,
}

/// The current state of a response.
pub(super) struct Progress {
    pub(super) response: Response,
    /// Its events so far, as they are sent. Empty if they are not stored.
    pub(super) frames: Vec<Bytes>,
    frame_bytes: usize,
    /// Present once it has ended.
    turn: Option<Arc<Turn>>,
}

/// Returns the bytes that a response takes in the store from its beginning.
pub(super) fn stored_bytes(asked: &Asked, history: &[Arc<Turn>], input: &Items) -> usize {
    json_bytes(asked) + items_bytes(input) + size_of_val(history)
}

/// Returns the bytes of items, with their index.
fn items_bytes(items: &Items) -> usize {
    json_bytes(items) + items.len() * ItemIndex::ITEM_BYTES
}

impl Stored {
    /// Returns a response to `input` that continues `history`. Its weight counts from now on. It
    /// takes the memory of `request` first.
    pub(super) fn new(
        response: Response,
        is_streamed: bool,
        history: Vec<Arc<Turn>>,
        input: Arc<Items>,
        weight: Weight,
        request: Option<&Lease>,
    ) -> Self {
        let is_background = response.asked.background;
        let asked_bytes = json_bytes(&*response.asked);
        let input_bytes = items_bytes(&input);
        let history_bytes = size_of_val(history.as_slice());
        weight.set(asked_bytes + input_bytes + history_bytes, request);
        let progress = Progress { response, frames: Vec::new(), frame_bytes: 0, turn: None };
        let stored = Self {
            is_background,
            is_streamed,
            history,
            input_index: ItemIndex::new(&input),
            input,
            asked_bytes,
            input_bytes,
            history_bytes,
            progress: watch::Sender::new(progress),
            cancel: CancellationToken::new(),
            weight,
        };
        stored.update(None, Vec::new());
        stored
    }

    /// Stores `response` as the current state, if it has changed, and the new events.
    pub(super) fn update(&self, response: Option<&Response>, frames: Vec<Bytes>) {
        self.progress.send_modify(|progress| {
            if let Some(response) = response {
                progress.response = response.clone();
            }
            if self.is_streamed {
                let bytes = frames.iter().map(|frame| frame.len() + FRAME_BYTES);
                progress.frame_bytes += bytes.sum::<usize>();
                progress.frames.extend(frames);
            }
            if progress.response.status.is_over() && progress.turn.is_none() {
                self.close(progress);
            }
            let input = if progress.turn.is_none() { self.input_bytes } else { 0 };
            let own = self.asked_bytes + self.history_bytes + progress.frame_bytes;
            self.weight.set(own + input, None);
        });
    }

    /// Makes the response one that others can continue. The weight of its input moves to the turn.
    fn close(&self, progress: &mut Progress) {
        let output = progress.response.output.clone();
        let _weight = self.weight.another(self.input_bytes + items_bytes(&output));
        let (input, output_index) = (self.input.clone(), ItemIndex::new(&output));
        progress.turn = Some(Arc::new(Turn { input, output, output_index, _weight }));
    }

    /// Returns the response in its current state.
    pub(super) fn response(&self) -> Response {
        self.progress.borrow().response.clone()
    }

    pub(in crate::server) fn is_over(&self) -> bool {
        self.progress.borrow().response.status.is_over()
    }

    pub(super) fn is_background(&self) -> bool {
        self.is_background
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Returns the turns that this response continues.
    pub(super) fn history(&self) -> &[Arc<Turn>] {
        &self.history
    }

    /// Returns its events so far. Empty if they are not stored.
    pub(super) fn frames(&self) -> Vec<Bytes> {
        self.progress.borrow().frames.clone()
    }

    /// Returns the turns that a response after this one continues. `None` before it has ended.
    pub(super) fn conversation(&self) -> Option<Vec<Arc<Turn>>> {
        let turn = self.progress.borrow().turn.clone()?;
        Some(self.history.iter().cloned().chain([turn]).collect())
    }

    /// Returns the items that the model was given: all earlier turns, and the input.
    pub(super) fn given(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.history.iter().flat_map(|turn| turn.items()).chain(self.input.iter())
    }

    /// Returns the item with that id, if it belongs to this response itself. Its output is found
    /// once it has ended.
    pub(super) fn item(&self, id: &str) -> Option<Arc<Item>> {
        let given = self.input_index.find(&self.input, id);
        given.cloned().or_else(|| {
            let turn = self.progress.borrow().turn.clone()?;
            turn.output_index.find(&turn.output, id).cloned()
        })
    }

    /// Returns a receiver of its changes.
    pub(super) fn follow(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Requests its end.
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Completes when its end was requested.
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl Turn {
    /// Returns a turn of another process. Its weight counts towards the same store as `weight`.
    pub(super) fn new(input: Arc<Items>, output: Arc<Items>, weight: &Weight) -> Self {
        let _weight = weight.another(items_bytes(&input) + items_bytes(&output));
        let output_index = ItemIndex::new(&output);
        Self { input, output, output_index, _weight }
    }

    pub(super) fn input(&self) -> &Items {
        &self.input
    }

    pub(super) fn output(&self) -> &Items {
        &self.output
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.input.iter().chain(self.output.iter())
    }
}
