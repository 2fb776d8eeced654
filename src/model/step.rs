//! The state that all layers of a step share.

use std::{slice, sync::Arc};

use burn::tensor::Tensor;
use playhouse_kernels::{AttentionMetadata, KvCache, KvLayer, RotaryTable, add};

use super::{Adapters, EncoderOutput, StepAdapters};

/// One step as the layers see it.
#[derive(Debug)]
pub struct Step<'a> {
    metas: &'a [AttentionMetadata],
    places: &'a [KvPlace],
    kv: &'a mut KvCache,
    adapters: Adapters<'a>,
    media: &'a StepMedia,
    /// The layers of the KV cache that earlier passes through the model's layers have used.
    first_layer: usize,
}

/// The images and sounds of a step.
#[derive(Debug, Default)]
pub struct StepMedia {
    /// The rows that take embeddings, in order.
    pub rows: Vec<MediaRows>,
    /// For each sequence of the batch, the item that all its tokens attend to (encoder-decoder).
    /// Empty if there are none.
    pub attended: Vec<Option<Arc<EncoderOutput>>>,
}

/// Rows of a step in a sequence, which take embeddings of an item that follow each other.
#[derive(Debug, Clone)]
pub struct MediaRows {
    /// The first row of the step.
    pub row: usize,
    /// Number of rows.
    pub len: usize,
    /// The embedding of the first row.
    pub first_embed: usize,
    /// The item.
    pub output: Arc<EncoderOutput>,
}

impl StepMedia {
    /// A step of text alone.
    pub const NONE: &'static Self = &Self { rows: Vec::new(), attended: Vec::new() };

    /// Returns whether the step has no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.attended.is_empty()
    }

    /// Returns `hidden`, `[num_tokens, hidden_size]`, with the embeddings in their rows. Behind
    /// these columns, `hidden` may have others, which stay (Gemma 4).
    #[must_use]
    pub fn placed(&self, hidden: Tensor<2>) -> Tensor<2> {
        let columns = hidden.dims()[1];
        self.rows.iter().fold(hidden, |hidden, rows| {
            let width = rows.output.embeddings.dims()[1].min(columns);
            let (from, to) = (rows.first_embed, rows.first_embed + rows.len);
            let values = rows.output.embeddings.clone().slice([from..to, 0..width]);
            hidden.slice_assign([rows.row..rows.row + rows.len, 0..width], values)
        })
    }

    /// Returns `hidden`, `[num_tokens, hidden_size]`, the output of layer `layer`, with the states
    /// for that layer added in the rows of the items that have some: HF
    /// `Qwen3VLTextModel._deepstack_process`.
    #[must_use]
    pub(super) fn added(&self, layer: usize, hidden: Tensor<2>) -> Tensor<2> {
        let states = |rows: &MediaRows| rows.output.by_layer.get(layer).cloned();
        self.rows.iter().fold(hidden, |hidden, rows| match states(rows) {
            None => hidden,
            Some(states) => added(hidden, rows, &states),
        })
    }
}

/// Returns rows of `hidden` with those of an item's tensor for a layer added.
fn added(hidden: Tensor<2>, rows: &MediaRows, states: &Tensor<2>) -> Tensor<2> {
    let width = hidden.dims()[1];
    let (from, to) = (rows.first_embed, rows.first_embed + rows.len);
    let (places, states) =
        (rows.row..rows.row + rows.len, states.clone().slice([from..to, 0..width]));
    let sum = add(hidden.clone().slice([places.clone(), 0..width]), states);
    hidden.slice_assign([places, 0..width], sum)
}

/// The place of a layer's keys and values in the KV cache. Layers of different groups share memory:
/// each group has block tables of its own, so no block belongs to both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvPlace {
    /// Index of its group, whose layers share block tables.
    pub group: usize,
    /// Its place among the layers of a block.
    pub layer: usize,
}

impl<'a> Step<'a> {
    /// Returns a step over a cache in which all layers are one group.
    #[must_use]
    pub fn new(meta: &'a AttentionMetadata, kv: &'a mut KvCache) -> Self {
        Self {
            metas: slice::from_ref(meta),
            places: &[],
            kv,
            adapters: Adapters::none(),
            media: StepMedia::NONE,
            first_layer: 0,
        }
    }

    /// Returns a step over a cache of several groups. `metas` has one entry for each group, and
    /// `places` one for each layer.
    #[must_use]
    pub fn of_groups(
        metas: &'a [AttentionMetadata],
        places: &'a [KvPlace],
        kv: &'a mut KvCache,
    ) -> Self {
        let (adapters, media) = (Adapters::none(), StepMedia::NONE);
        Self { metas, places, kv, adapters, media, first_layer: 0 }
    }

    /// Returns the same step with adapters of its rows.
    #[must_use]
    pub fn with_adapters(self, adapters: &'a StepAdapters) -> Self {
        Self { adapters: Adapters::of(adapters), ..self }
    }

    /// Returns the same step with images and sounds.
    #[must_use]
    pub fn with_media(self, media: &'a StepMedia) -> Self {
        Self { media, ..self }
    }

    /// Returns the images and sounds of the step.
    #[must_use]
    pub fn media(&self) -> &'a StepMedia {
        self.media
    }

    /// Returns the adapters of the step's rows.
    #[must_use]
    pub fn adapters(&self) -> Adapters<'a> {
        self.adapters
    }

    /// Returns the sequences of the step, for layers that keep nothing of them.
    #[must_use]
    pub fn batch(&self) -> &'a AttentionMetadata {
        &self.metas[0]
    }

    /// Begins a pass through a model's layers, whose layers of the KV cache begin at `first`.
    pub(super) fn begin_pass(&mut self, first: usize) {
        self.first_layer = first;
    }

    /// Returns the keys and values of a layer, and the places of the step's tokens in them. Layers
    /// are numbered from 0, in the order of [`KvLayers::windows`](super::KvLayers::windows). In a
    /// model with several passes through its layers, the numbers are those of a pass.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer(&mut self, layer: usize) -> (&'a AttentionMetadata, &mut KvLayer) {
        let layer = self.first_layer + layer;
        let in_one_group = KvPlace { group: 0, layer };
        let place = self.places.get(layer).copied().unwrap_or(in_one_group);
        (&self.metas[place.group], self.kv.layer_of_group(place.layer, place.group))
    }
}

/// The position and the type of each token of a step.
#[derive(Debug, Clone, Copy)]
pub struct Positions<'a> {
    in_sequence: &'a [u32],
    types: &'a [u32],
    axes: &'a [[u32; 3]],
    turned: Option<Turned<'a>>,
}

/// The rows of a rotary table for the tokens of a step.
#[derive(Debug, Clone, Copy)]
struct Turned<'a> {
    rows: &'a [u32],
    /// A table of this step alone, in the place of the layers' own.
    table: Option<&'a RotaryTable>,
}

impl<'a> Positions<'a> {
    /// Returns the positions of text, which have one axis: the place in the sequence.
    #[must_use]
    pub fn of_text(meta: &'a AttentionMetadata) -> Self {
        Self { in_sequence: &meta.positions, types: &[], axes: &[], turned: None }
    }

    /// Returns the same with the type of each token, `[num_tokens]`: 0, or 1 in the second text of
    /// a pair. Without types, all are 0.
    #[must_use]
    pub fn with_types(self, types: &'a [u32]) -> Self {
        Self { types, ..self }
    }

    /// Returns the same with the frame, row and column of each token, `[num_tokens]`, for a model
    /// whose positions have three axes. A token of text has the same number on all of them. Without
    /// axes, that number is its place in the sequence.
    #[must_use]
    pub fn with_axes(self, axes: &'a [[u32; 3]]) -> Self {
        Self { axes, ..self }
    }

    /// Returns the same with the row of each token in rotary tables, `[num_tokens]`, for a model
    /// with a [`Backbone::short_context`](super::Backbone::short_context). The row of a request
    /// that stays within it is `max_model_len` plus the place in the sequence. Without rows, each
    /// is that place.
    #[must_use]
    pub fn with_rotary_rows(self, rows: &'a [u32]) -> Self {
        match rows {
            [] => self,
            rows => self.turned(rows, None),
        }
    }

    /// Returns the frame, row and column of each token: `[num_tokens]`, or nothing if all are the
    /// place in the sequence.
    #[must_use]
    pub fn axes(self) -> &'a [[u32; 3]] {
        self.axes
    }

    /// Returns the same with the rows of the tokens in rotary tables: in `table`, or by default in
    /// the layers' own.
    pub(super) fn turned(self, rows: &'a [u32], table: Option<&'a RotaryTable>) -> Self {
        Self { turned: Some(Turned { rows, table }), ..self }
    }

    /// Returns the table that turns the heads of a layer whose own table is `own`, and the row of
    /// each token.
    pub(super) fn of_table(
        self,
        own: Option<&'a RotaryTable>,
    ) -> (&'a [u32], Option<&'a RotaryTable>) {
        match (self.turned, own) {
            (Some(Turned { rows, table }), Some(own)) => (rows, Some(table.unwrap_or(own))),
            (_, own) => (self.in_sequence, own),
        }
    }

    /// Returns the same for a layer that has a table.
    pub(super) fn of_own_table(self, own: &'a RotaryTable) -> (&'a [u32], &'a RotaryTable) {
        let (rows, table) = self.of_table(Some(own));
        (rows, table.unwrap_or(own))
    }

    /// Returns the place of each token in its sequence: `[num_tokens]`.
    #[must_use]
    pub fn in_sequence(self) -> &'a [u32] {
        self.in_sequence
    }

    /// Returns the type of each token: `[num_tokens]`, or nothing if all are 0.
    #[must_use]
    pub fn types(self) -> &'a [u32] {
        self.types
    }
}
