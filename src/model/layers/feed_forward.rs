//! The part of a layer that computes each token alone.

use burn::tensor::Tensor;

use super::{LayerPlace, Mlp, Moe};
use crate::model::config::FeedForward;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// A [`FeedForward`] with its weights.
#[derive(Debug)]
pub(in crate::model) enum FeedForwardLayer {
    Mlp(Box<Mlp>),
    Moe(Box<Moe>),
}

impl FeedForwardLayer {
    /// Loads the feed-forward part of the layer at `place`, if it has one.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
    ) -> Result<Option<Self>, ModelError> {
        Ok(Some(match &place.layer().feed_forward {
            FeedForward::Mlp(mlp) => Mlp::load(loader, place, &place.names().mlp, mlp)
                .map(|mlp| Self::Mlp(Box::new(mlp)))?,
            FeedForward::Moe(moe) => Self::Moe(Box::new(Moe::load(loader, place, moe)?)),
            FeedForward::None => return Ok(None),
        }))
    }

    /// Maps `[num_tokens, hidden]` to the same shape.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        match self {
            Self::Mlp(mlp) => mlp.forward(x, adapters),
            Self::Moe(moe) => moe.forward(x, adapters),
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Mlp(mlp) => mlp.mapped_bytes(),
            Self::Moe(moe) => moe.mapped_bytes(),
        }
    }
}
