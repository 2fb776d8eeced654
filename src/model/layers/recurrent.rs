//! Mixers that carry a state from token to token in place of keys and values.

use burn::tensor::Tensor;

use super::LayerPlace;
use super::delta_net::DeltaNet;
use super::griffin::Griffin;
use super::kimi_delta::KimiDelta;
use super::lightning::Lightning;
use super::rotary::RotaryTables;
use super::short_conv::ShortConv;
use crate::model::config::RecurrentConfig;
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// A [`RecurrentConfig`] with its weights.
#[derive(Debug)]
pub(in crate::model) enum Recurrent {
    DeltaNet(Box<DeltaNet>),
    ShortConv(Box<ShortConv>),
    Lightning(Box<Lightning>),
    Griffin(Box<Griffin>),
    Kimi(Box<KimiDelta>),
}

impl Recurrent {
    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &RecurrentConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        match config {
            RecurrentConfig::DeltaNet(config) => {
                DeltaNet::load(loader, place, config).map(Box::new).map(Self::DeltaNet)
            }
            RecurrentConfig::ShortConv(config) => {
                ShortConv::load(loader, place, config).map(Box::new).map(Self::ShortConv)
            }
            RecurrentConfig::Lightning(config) => {
                Lightning::load(loader, place, config, rotary).map(Box::new).map(Self::Lightning)
            }
            RecurrentConfig::Griffin(config) => {
                Griffin::load(loader, place, config).map(Box::new).map(Self::Griffin)
            }
            RecurrentConfig::Kimi(config) => {
                KimiDelta::load(loader, place, config).map(Box::new).map(Self::Kimi)
            }
        }
    }

    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's sequences over
    /// these tokens.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        match self {
            Self::DeltaNet(mixer) => mixer.forward(x, step),
            Self::ShortConv(mixer) => mixer.forward(x, step),
            Self::Lightning(mixer) => mixer.forward(x, positions, step),
            Self::Griffin(mixer) => mixer.forward(x, step),
            Self::Kimi(mixer) => mixer.forward(x, step),
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        match self {
            Self::DeltaNet(mixer) => mixer.mapped_bytes(),
            Self::ShortConv(mixer) => mixer.mapped_bytes(),
            Self::Lightning(mixer) => mixer.mapped_bytes(),
            Self::Griffin(mixer) => mixer.mapped_bytes(),
            Self::Kimi(mixer) => mixer.mapped_bytes(),
        }
    }
}
