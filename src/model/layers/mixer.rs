//! The part of a layer that mixes each token with the tokens before it.

use burn::tensor::Tensor;
use playhouse_kernels::add;

use super::mamba2::scaled;
use super::rotary::RotaryTables;
use super::{Attention, LatentAttention, LayerPlace, Mamba, Mamba2, Recurrent};
use crate::model::config::{Mixer, ParallelConfig};
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// A [`Mixer`] with its weights.
#[derive(Debug)]
pub(in crate::model) enum MixerLayer {
    Attention(Box<Attention>),
    Latent(Box<LatentAttention>),
    Mamba(Box<Mamba>),
    Mamba2(Box<Mamba2>),
    Parallel(Box<Parallel>),
    Recurrent(Recurrent),
}

/// Attention and a state-space model over the same hidden state.
#[derive(Debug)]
pub(in crate::model) struct Parallel {
    attention: Attention,
    /// The factors of its input and of its output.
    attention_multipliers: [f32; 2],
    mamba: Mamba2,
}

impl MixerLayer {
    /// Loads the mixer of the layer at `place`, if it has one.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Option<Self>, ModelError> {
        let kv_layer = place.kv_layer();
        Ok(Some(match &place.layer().mixer {
            Mixer::Attention(attention) => {
                Self::Attention(Box::new(Attention::load(loader, place, attention, rotary)?))
            }
            Mixer::Latent(latent) => {
                Self::Latent(Box::new(LatentAttention::load(loader, place, latent, rotary)?))
            }
            Mixer::Mamba(mamba) => {
                Self::Mamba(Box::new(Mamba::load(loader, place, mamba, kv_layer)?))
            }
            Mixer::Mamba2(mamba) => {
                Self::Mamba2(Box::new(Mamba2::load(loader, place, mamba, kv_layer)?))
            }
            Mixer::Parallel(ParallelConfig { attention, attention_multipliers, mamba }) => {
                Self::Parallel(Box::new(Parallel {
                    attention: Attention::load(loader, place, attention, rotary)?,
                    attention_multipliers: *attention_multipliers,
                    mamba: Mamba2::load(loader, place, mamba, kv_layer + 1)?,
                }))
            }
            Mixer::Recurrent(mixer) => {
                Self::Recurrent(Recurrent::load(loader, place, mixer, rotary)?)
            }
            Mixer::None => return Ok(None),
        }))
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
            Self::Latent(latent) => latent.forward(x, positions, step),
            Self::Mamba(mamba) => mamba.forward(x, step),
            Self::Mamba2(mamba) => mamba.forward(x, step),
            Self::Recurrent(mixer) => mixer.forward(x, positions, step),
            Self::Parallel(both) => {
                let [input, output] = both.attention_multipliers;
                let mixed = both.mamba.forward(x.clone(), step);
                let attended = both.attention.forward(scaled(x, input), positions, step);
                add(mixed, scaled(attended, output))
            }
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Attention(attention) => attention.mapped_bytes(),
            Self::Latent(latent) => latent.mapped_bytes(),
            Self::Mamba(mamba) => mamba.mapped_bytes(),
            Self::Mamba2(mamba) => mamba.mapped_bytes(),
            Self::Parallel(both) => both.attention.mapped_bytes() + both.mamba.mapped_bytes(),
            Self::Recurrent(mixer) => mixer.mapped_bytes(),
        }
    }
}
