//! One layer: HF `Qwen4ExpTextDecoderLayer`.

use burn::tensor::Tensor;
use playhouse_kernels::add;

use super::ngrams::Ngrams;
use super::streams::GatedResidual;
use crate::model::config::HyperConfig;
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{FeedForwardLayer, LayerPlace, MixerLayer};
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// The modules of the streams around the parts of a layer.
pub(super) const AROUND_MIXER: &str = "attn_hyper_connection";
pub(super) const AROUND_MLP: &str = "mlp_hyper_connection";

/// A mixer and a feed-forward part, and the streams around each.
#[derive(Debug)]
pub(super) struct Layer {
    ngrams: Option<Box<Ngrams>>,
    around_mixer: GatedResidual,
    mixer: MixerLayer,
    around_mlp: GatedResidual,
    feed_forward: FeedForwardLayer,
}

impl Layer {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
        streams: HyperConfig,
    ) -> Result<Self, ModelError> {
        let missing = |part: &str| ModelError::Family(format!("a layer has no {part}").into());
        let mut around =
            |name| GatedResidual::load(loader, place.config, streams, &place.module(name));
        let (around_mixer, around_mlp) = (around(AROUND_MIXER)?, around(AROUND_MLP)?);
        Ok(Self {
            ngrams: Ngrams::load(loader, place, streams)?.map(Box::new),
            around_mixer,
            mixer: MixerLayer::load(loader, place, rotary)?.ok_or_else(|| missing("mixer"))?,
            around_mlp,
            feed_forward: FeedForwardLayer::load(loader, place)?
                .ok_or_else(|| missing("feed-forward part"))?,
        })
    }

    /// Maps streams, `[num_tokens, count * hidden_size]`, to the same shape. `embedded` is the
    /// result of [`Backbone::embed`](crate::model::Backbone::embed).
    pub(super) fn forward(
        &self,
        mut streams: Tensor<2>,
        embedded: &Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        if let Some(ngrams) = &self.ngrams {
            let added = ngrams.forward(&streams, embedded, step);
            streams = add(streams, added);
        }
        let streams = self
            .around_mixer
            .around(&streams, adapters, |input| self.mixer.forward(input, positions, step));
        self.around_mlp
            .around(&streams, adapters, |input| self.feed_forward.forward(input, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let around = self.around_mixer.mapped_bytes() + self.around_mlp.mapped_bytes();
        let ngrams = self.ngrams.as_ref().map_or(0, |ngrams| ngrams.mapped_bytes());
        around + ngrams + self.mixer.mapped_bytes() + self.feed_forward.mapped_bytes()
    }
}
