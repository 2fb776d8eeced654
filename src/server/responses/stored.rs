//! A response that is kept, and what it goes on from.

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

/// What an event takes beside its bytes: its place in the list, and an allocation.
const FRAME_BYTES: usize = size_of::<Bytes>() + 32;

/// What was said to the model, and what it did. Responses that go on from it share it.
pub(super) struct Turn {
    input: Arc<Items>,
    output: Arc<Items>,
    output_index: ItemIndex,
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
    input: Arc<Items>,
    input_index: ItemIndex,
    /// Bytes of what was asked for, of its input, and of the list of turns before it.
    asked_bytes: usize,
    input_bytes: usize,
    history_bytes: usize,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
    weight: Weight,
}

/// How far a response is.
pub(super) struct Progress {
    pub(super) response: Response,
    /// Its events so far, as they are sent; empty where they are not kept.
    pub(super) frames: Vec<Bytes>,
    frame_bytes: usize,
    /// There once it is over.
    turn: Option<Arc<Turn>>,
}

/// Bytes that a response takes in the store from its beginning.
pub(super) fn stored_bytes(asked: &Asked, history: &[Arc<Turn>], input: &Items) -> usize {
    json_bytes(asked) + items_bytes(input) + size_of_val(history)
}

/// Bytes that items take, with their index.
fn items_bytes(items: &Items) -> usize {
    json_bytes(items) + items.len() * ItemIndex::ITEM_BYTES
}

impl Stored {
    /// One that is in `history`'s conversation and was asked `input`. It weighs from now on, with
    /// memory of `request` as far as that has it.
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

    /// Goes on to `response`, if that has changed, with what was told since.
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

    /// From here on, others can go on from it. Its input weighs with the turn.
    fn close(&self, progress: &mut Progress) {
        let output = progress.response.output.clone();
        let _weight = self.weight.another(self.input_bytes + items_bytes(&output));
        let (input, output_index) = (self.input.clone(), ItemIndex::new(&output));
        progress.turn = Some(Arc::new(Turn { input, output, output_index, _weight }));
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
    pub(super) fn given(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.history.iter().flat_map(|turn| turn.items()).chain(self.input.iter())
    }

    /// The item of that name, if it is one of this response's own. Its output is there once it is
    /// over.
    pub(super) fn item(&self, id: &str) -> Option<Arc<Item>> {
        let given = self.input_index.find(&self.input, id);
        given.cloned().or_else(|| {
            let turn = self.progress.borrow().turn.clone()?;
            turn.output_index.find(&turn.output, id).cloned()
        })
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
    pub(super) fn items(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.input.iter().chain(self.output.iter())
    }
}
