//! The norms of hidden states, and of the layers of a model.

use crate::model::config::{FeedForward, Mixer, ModelConfig};
use crate::model::family::{LayerNorms, NormKind};
use crate::weights::Checkpoint;

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
    OfStates {
        norms: LayerNorms,
        /// Their names if the checkpoint has those of the model's class.
        of_class: LayerNorms,
    },
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
            (Some(OtherNorms::OfStates { norms, .. }), Mixer::Recurrent(_), _)
            | (Some(OtherNorms::OfDense(norms)), _, FeedForward::Mlp(_)) => norms,
            _ => self.norms,
        };
        let norms = layer.norms(norms);
        match index == 0 && !self.has_first_norm {
            true => LayerNorms { before_attention: None, ..norms },
            false => norms,
        }
    }

    /// Takes the names of norms that the checkpoint has, in a model whose layers with a state have
    /// norms of their own.
    pub(super) fn fit_norms(&mut self, checkpoint: &Checkpoint) {
        let Some(OtherNorms::OfStates { norms, of_class }) = self.other_norms else { return };
        let is_stored = |of_states: bool, norm: Option<&str>| {
            self.layers.iter().enumerate().any(|(index, layer)| {
                let has_state = matches!(layer.mixer, Mixer::Recurrent(_));
                let module = norm.filter(|_| has_state == of_states);
                let name = module.map(|it| format!("{}.weight", self.names.of_layer(index, it)));
                name.is_some_and(|name| checkpoint.shape(&name).is_some())
            })
        };
        let is_of_class =
            !is_stored(true, norms.before_attention) && is_stored(true, of_class.before_attention);
        // transformers renames the norms of all layers alike as it writes them.
        let is_renamed =
            !is_stored(false, self.norms.after_attention) && is_stored(false, norms.before_mlp);
        if is_of_class {
            self.other_norms = Some(OtherNorms::OfStates { norms: of_class, of_class });
        }
        if is_renamed {
            self.norms.after_attention = norms.before_mlp;
        }
    }
}
