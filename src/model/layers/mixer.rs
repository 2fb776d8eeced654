//! The part of a layer that mixes each token with the tokens before it.

use burn::tensor::Tensor;

use super::rotary::RotaryTables;
use super::{Attention, LayerPlace};
use crate::model::config::Mixer;
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// A [`Mixer`] with its weights.
#[derive(Debug)]
pub(in crate::model) enum MixerLayer {
    Attention(Attention),
}

impl MixerLayer {
    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        match &place.layer().mixer {
            Mixer::Attention(attention) => {
                Attention::load(loader, place, attention, rotary).map(Self::Attention)
            }
        }
    }

    /// Maps `[num_tokens, hidden]` to the same shape. Writes the state that later tokens read into
    /// the step's cache.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        match self {
            Self::Attention(attention) => attention.forward(x, positions, step),
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Attention(attention) => attention.mapped_bytes(),
        }
    }
}
