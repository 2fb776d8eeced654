//! The tower of sounds of Phi-4-multimodal with its projectors: HF `Phi4MultimodalAudioModel`,
//! `Phi4MultimodalAudioEmbedding`.
//!
//! | tensor | shape |
//! |---|---|
//! | spectrogram of an item | `[times, num_mel_bins]` |
//! | second tensor, without elements | there is one if the prompt has images, too |
//! | states | `[times / time_reduction, hidden_size]`, rounded up |
//! | embeddings | `[times / time_reduction, text_hidden_size]` |
//!
//! A long sound is cut into pieces, which do not see each other. The last one is filled with zeros.
//! A sound beside an image goes through a projector of its own.

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, AttentionMetadata, activate, profile::timed};

use super::conformer::ConformerLayer;
use super::halving::Halvings;
use super::phi4_config::{PIECE, Phi4Sounds};
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

const MODULE: &str = "model.embed_tokens_extend.audio_embed";

/// The modules of the projectors: those of transformers, and those of the authors' code.
const ALONE: [[&str; 2]; 2] = [
    ["up_proj_for_speech", "audio_projection.speech.0"],
    ["down_proj_for_speech", "audio_projection.speech.2"],
];
const BESIDE_IMAGES: [[&str; 2]; 2] = [
    ["up_proj_for_vision_speech", "audio_projection.vision.0"],
    ["down_proj_for_vision_speech", "audio_projection.vision.2"],
];

/// The encoder of sounds.
#[derive(Debug)]
pub(crate) struct Phi4Hearing {
    /// The mean of each bin, and the factor after it is subtracted.
    scale: [Vec<f32>; 2],
    halvings: Halvings,
    layers: Vec<ConformerLayer>,
    alone: Projector,
    beside_images: Projector,
    config: Phi4Sounds,
}

#[derive(Debug)]
struct Projector {
    up: Linear,
    down: Linear,
}

impl Phi4Sounds {
    /// Loads the tower with its projectors.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(in crate::model) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Phi4Hearing, ModelError> {
        let encoder = format!("{MODULE}.encoder");
        let bins = [self.num_mel_bins];
        let mut scale =
            |name: &str| loader.values(&format!("{encoder}.encoder_embedding.{name}"), &bins);
        let scale = [scale("global_mean")?, scale("global_invstd")?];
        let biases = format!("{encoder}.relative_attention_bias_layer.bias_values.weight");
        let biases = loader.values(&biases, &[self.num_biases(), self.num_heads])?;
        let halvings = Halvings::load(loader, &format!("{encoder}.embed"), self)?;
        let layers = (0..self.num_layers).map(|index| {
            ConformerLayer::load(loader, &format!("{encoder}.encoders.{index}"), self, &biases)
        });
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Phi4Hearing {
            scale,
            halvings,
            layers,
            alone: Projector::load(loader, ALONE, self)?,
            beside_images: Projector::load(loader, BESIDE_IMAGES, self)?,
            config: self.clone(),
        })
    }
}

impl Projector {
    fn load(
        loader: &mut WeightLoader<'_>,
        names: [[&str; 2]; 2],
        config: &Phi4Sounds,
    ) -> Result<Self, ModelError> {
        let mut linear = |names: [&str; 2], inputs: usize| {
            let [usual, other] = names.map(|name| format!("{MODULE}.{name}"));
            let module = if loader.has(&format!("{other}.weight")) { other } else { usual };
            Linear::of_media(loader, &[Part::new(module, config.outputs)], inputs, true)
        };
        let [up, down] = names;
        Ok(Self { up: linear(up, config.hidden_size)?, down: linear(down, config.outputs)? })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        timed("projector", || {
            let x = activate(self.up.forward(x, Adapters::none()), Activation::Gelu);
            self.down.forward(x, Adapters::none())
        })
    }
}

impl Phi4Hearing {
    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let (mel, is_beside_images) = match &*item.tensors {
            [mel] => (mel, false),
            [mel, _] => (mel, true),
            _ => return Err("a sound is one spectrogram".to_owned()),
        };
        let (mel, times) = self.scaled(mel)?;
        let (found, expected) = (self.config.num_embeds(times), item.num_embeds);
        if found != expected {
            return Err(format!("the item has {found} embeddings, and {expected} placeholders"));
        }
        let states = self.states(&mel, times);
        let projector = if is_beside_images { &self.beside_images } else { &self.alone };
        Ok(EncoderOutput { embeddings: projector.forward(states), by_layer: Vec::new() })
    }

    /// Returns the spectrogram as the tower takes it, and its number of times.
    fn scaled(&self, tensor: &MediaTensorView<'_>) -> Result<(Vec<f32>, usize), String> {
        let bins = self.config.num_mel_bins;
        let MediaTensorView { shape, data: MediaData::F32(bytes) } = tensor else {
            return Err("a spectrogram has elements of f32".to_owned());
        };
        let times = shape.first().copied().unwrap_or_default();
        if times == 0 || **shape != [times, bins] || bytes.len() != 4 * times * bins {
            return Err(format!("a spectrogram is [times, {bins}], not {shape:?}"));
        }
        let [mean, factor] = &self.scale;
        let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        let scaled = |(at, value): (usize, f32)| (value - mean[at % bins]) * factor[at % bins];
        Ok((values.enumerate().map(scaled).collect(), times))
    }

    /// Returns the states after the last layer.
    fn states(&self, mel: &[f32], times: usize) -> Tensor<2> {
        let x = self.halvings.forward(mel, [times, self.config.num_mel_bins]);
        let [count, width] = x.dims();
        let (pieces, filled) = pieces(count);
        let x = match filled - count {
            0 => x,
            missing => {
                let zeros = Tensor::zeros([missing, width], &x.device());
                Tensor::cat(vec![x, zeros], 0)
            }
        };
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, &pieces));
        if filled == count { x } else { x.slice([0..count, 0..width]) }
    }
}

/// Returns the pieces of `count` states, and their states in all.
fn pieces(count: usize) -> (AttentionMetadata, usize) {
    let (len, number) = if count > PIECE { (PIECE, count.div_ceil(PIECE)) } else { (count, 1) };
    let meta = AttentionMetadata {
        query_start_loc: (0..=number).map(|piece| (piece * len) as u32).collect(),
        seq_lens: vec![len as u32; number],
        positions: (0..number).flat_map(|_| 0..len as u32).collect(),
        ..AttentionMetadata::default()
    };
    (meta, number * len)
}

impl MediaEncoder for Phi4Hearing {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        token_id == self.config.placeholder
    }

    fn mapped_bytes(&self) -> u64 {
        let projectors = [&self.alone, &self.beside_images].into_iter();
        let linears = projectors.flat_map(|it| [&it.up, &it.down]);
        self.halvings.mapped_bytes()
            + self.layers.iter().map(ConformerLayer::mapped_bytes).sum::<u64>()
            + linears.map(Linear::mapped_bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sounds_have_pieces_of_one_length() {
        let (meta, filled) = pieces(500);
        assert_eq!((meta.query_start_loc, meta.seq_lens, filled), (vec![0, 500], vec![500], 500));
        let (meta, filled) = pieces(501);
        assert_eq!((meta.query_start_loc, filled), (vec![0, 500, 1_000], 1_000));
        assert_eq!(meta.positions[499..502], [499, 0, 1]);
    }
}
