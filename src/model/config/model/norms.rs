//! The norms of hidden states, and of the layers of a model.

use crate::model::config::{FeedForward, Mixer, ModelConfig};
use crate::model::family::{LayerNorms, NormKind};

/// The norms of hidden states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormConfig {
    pub(crate) kind: NormKind,
    /// The number added to the variance or mean square.
    pub eps: f32,
}

/// The norms of some layers, where they differ from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherNorms {
    /// Those of layers with a state in place of attention.
    OfStates(LayerNorms),
    /// Those of layers with a dense feed-forward part.
    OfDense(LayerNorms),
}

/// The stream after a part with the factors `[a, b]` is `a · h + b · part(h)`, where `h` is the
/// norm of the stream before it: HF `MiniMaxDecoderLayer`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NormedResidual {
    /// Around attention.
    pub(crate) attention: [f32; 2],
    /// Around other mixers.
    pub(crate) recurrent: [f32; 2],
    /// Around feed-forward parts.
    pub(crate) feed_forward: [f32; 2],
}

impl ModelConfig {
    /// Returns the norms of layer `index`.
    pub(crate) fn norms_of(&self, index: usize) -> LayerNorms {
        let layer = &self.layers[index];
        let norms = match (self.other_norms, &layer.mixer, &layer.feed_forward) {
            (Some(OtherNorms::OfStates(norms)), Mixer::Recurrent(_), _)
            | (Some(OtherNorms::OfDense(norms)), _, FeedForward::Mlp(_)) => norms,
            _ => self.norms,
        };
        let norms = layer.norms(norms);
        match index == 0 && !self.has_first_norm {
            true => LayerNorms { before_attention: None, ..norms },
            false => norms,
        }
    }
}
