//! Embeddings that each layer has of its own: HF `Gemma3nTextModel`, `Gemma4TextModel` and
//! `EmbeddingGemma2TextPLE`. The last one has no table of tokens, and no sum with its rows.
//!
//! | tensor | shape |
//! |---|---|
//! | embeddings of tokens, of all layers | `[num_tokens, num_layers * width]` |
//! | embeddings of a layer | `[num_tokens, width]` |

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, EmbeddingTable, activate, add, embedding, scale};

use super::{LayerPlace, Linear, Norm, Part, embedding_table, load_activation};
use crate::model::config::{ActivationName, ModelConfig, PerLayerConfig};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The modules beside the layers.
const TABLE: &str = "model.embed_tokens_per_layer";
const PROJECTION: &str = "model.per_layer_model_projection";
const NORM: &str = "model.per_layer_projection_norm";
/// The modules of a layer.
const GATE: &str = "per_layer_input_gate";
const BACK: &str = "per_layer_projection";
const BACK_NORM: &str = "post_per_layer_input_norm";

/// The embeddings of all layers.
#[derive(Debug)]
pub(in crate::model) struct PerLayerInputs {
    /// The rows of tokens, and how many of them there are.
    table: Option<(EmbeddingTable, usize)>,
    projection: Linear,
    norm: Norm,
    hidden_size: usize,
    num_layers: usize,
    width: usize,
}

/// The part of a layer that reads the layer's embeddings.
#[derive(Debug)]
pub(in crate::model) struct PerLayerGate {
    gate: Linear,
    activation: Activation,
    projection: Linear,
    norm: Norm,
}

/// Returns the tensors of these parts with their shapes.
pub(in crate::model) fn tensors(
    config: &ModelConfig,
    per_layer: &PerLayerConfig,
) -> Vec<(String, Vec<usize>)> {
    let (hidden, names) = (config.hidden_size, &config.names);
    let PerLayerConfig { width, vocab } = *per_layer;
    let all = config.layers.len() * width;
    let weight = |module: String, shape: &[usize]| (format!("{module}.weight"), shape.to_vec());
    let stored = |module: &str| names.stored(module).into_owned();
    let mut tensors = Vec::from_iter(vocab.map(|vocab| weight(stored(TABLE), &[vocab, all])));
    tensors.push(weight(stored(PROJECTION), &[all, hidden]));
    tensors.push(weight(stored(NORM), &[width]));
    for layer in 0..config.layers.len() {
        tensors.push(weight(names.of_layer(layer, GATE), &[width, hidden]));
        tensors.push(weight(names.of_layer(layer, BACK), &[hidden, width]));
        tensors.push(weight(names.of_layer(layer, BACK_NORM), &[hidden]));
    }
    tensors
}

impl PerLayerInputs {
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        per_layer: PerLayerConfig,
    ) -> Result<Self, ModelError> {
        let (hidden_size, num_layers) = (config.hidden_size, config.layers.len());
        let (names, PerLayerConfig { width, vocab }) = (&config.names, per_layer);
        let all = num_layers * width;
        let projection = [Part::new(names.stored(PROJECTION).into_owned(), all)];
        let table = match vocab {
            None => None,
            Some(vocab) => {
                Some((embedding_table(loader, &names.stored(TABLE), vocab, all)?, vocab))
            }
        };
        Ok(Self {
            table,
            projection: Linear::load(loader, &projection, hidden_size, false)?,
            norm: Norm::load(loader, &names.stored(NORM), width, config.norm)?,
            hidden_size,
            num_layers,
            width,
        })
    }

    /// Returns `hidden`, `[num_tokens, hidden_size]`, and behind it the embeddings of tokens, if
    /// there is a table of them.
    pub(in crate::model) fn beside(&self, hidden: Tensor<2>, token_ids: &[u32]) -> Tensor<2> {
        let Some((table, vocab)) = &self.table else { return hidden };
        let in_table = |id: &u32| if (*id as usize) < *vocab { *id } else { 0 };
        let ids: Vec<u32> = token_ids.iter().map(in_table).collect();
        let of_tokens = scale(embedding(table, &ids), (self.width as f32).sqrt());
        Tensor::cat(vec![hidden, of_tokens], 1)
    }

    /// Returns both parts of [`PerLayerInputs::beside`], the second with what all layers read of
    /// the first.
    pub(in crate::model) fn apart(
        &self,
        embedded: Tensor<2>,
        adapters: Adapters<'_>,
    ) -> (Tensor<2>, Tensor<2>) {
        let (width, count) = (self.width, self.num_layers);
        let hidden = embedded.clone().narrow(1, 0, self.hidden_size);
        let [tokens, _] = hidden.dims();
        let factor = (self.hidden_size as f32).sqrt().recip();
        let projected = scale(self.projection.forward(hidden.clone(), adapters), factor);
        let normed = self.norm.forward(projected.reshape([tokens * count, width]));
        let normed = normed.reshape([tokens, count * width]);
        if self.table.is_none() {
            return (hidden, normed);
        }
        let of_tokens = embedded.narrow(1, self.hidden_size, count * width);
        (hidden, scale(add(normed, of_tokens), std::f32::consts::FRAC_1_SQRT_2))
    }

    /// Returns the embeddings of layer `index`, of those of all layers.
    pub(in crate::model) fn of_layer(&self, all: &Tensor<2>, index: usize) -> Tensor<2> {
        all.clone().narrow(1, index * self.width, self.width)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.projection.mapped_bytes()
    }
}

impl PerLayerGate {
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        width: usize,
        activation: ActivationName,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let matrix = |loader: &mut WeightLoader<'_>, name: &str, outputs, inputs| {
            Linear::load(loader, &[Part::new(place.module(name), outputs)], inputs, false)
        };
        Ok(Self {
            gate: matrix(loader, GATE, width, hidden)?,
            activation: load_activation(loader, place, activation)?,
            projection: matrix(loader, BACK, hidden, width)?,
            norm: Norm::load(loader, &place.module(BACK_NORM), hidden, place.config.norm)?,
        })
    }

    /// Maps `[num_tokens, hidden_size]` to the same shape. `embeddings` are those of the layer.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        embeddings: Tensor<2>,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        let gate = activate(self.gate.forward(x, adapters), self.activation);
        self.norm.forward(self.projection.forward(gate.mul(embeddings), adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.gate.mapped_bytes() + self.projection.mapped_bytes()
    }
}
