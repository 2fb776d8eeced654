//! The part of a layer that computes each token alone.

use burn::tensor::Tensor;

use super::{LayerPlace, Mlp};
use crate::model::ModelError;
use crate::model::config::FeedForward;
use crate::model::weight_loader::WeightLoader;

/// A [`FeedForward`] with its weights.
#[derive(Debug)]
pub(in crate::model) enum FeedForwardLayer {
    GatedMlp(Mlp),
}

impl FeedForwardLayer {
    /// Loads the feed-forward part of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
    ) -> Result<Self, ModelError> {
        match &place.layer().feed_forward {
            FeedForward::GatedMlp(mlp) => Mlp::load(loader, place, mlp).map(Self::GatedMlp),
        }
    }

    /// Maps `[num_tokens, hidden]` to the same shape.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::GatedMlp(mlp) => mlp.forward(x),
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::GatedMlp(mlp) => mlp.mapped_bytes(),
        }
    }
}
