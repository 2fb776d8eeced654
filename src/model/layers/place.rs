//! The place of a layer in its model.

use crate::model::config::{LayerConfig, Mixer, ModelConfig};
use crate::model::family::WeightNames;

/// A layer of a model that is being loaded.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct LayerPlace<'a> {
    /// The model.
    pub(in crate::model) config: &'a ModelConfig,
    /// The index of the layer, from 0.
    pub(in crate::model) index: usize,
}

impl<'a> LayerPlace<'a> {
    /// Returns the layer's config.
    pub(in crate::model) fn layer(self) -> &'a LayerConfig {
        &self.config.layers[self.index]
    }

    /// Returns the first layer of the KV cache that the layer uses: one of its own, or one of the
    /// layer whose keys and values it reads.
    pub(in crate::model) fn kv_layer(self) -> usize {
        let owner = match &self.layer().mixer {
            Mixer::Attention(attention) => attention.kv_from,
            _ => None,
        };
        self.config.first_kv_layer(owner.unwrap_or(self.index))
    }

    /// Returns the place of the layer in the model as a Hugging Face folder has it.
    pub(in crate::model) fn original(self) -> Self {
        Self { config: self.config.original.as_deref().unwrap_or(self.config), ..self }
    }

    pub(in crate::model) fn names(self) -> &'a WeightNames {
        &self.config.names
    }

    /// Returns the name in the checkpoint of the layer's module `name`.
    pub(in crate::model) fn module(self, name: &str) -> String {
        self.names().of_layer(self.index, name)
    }
}
