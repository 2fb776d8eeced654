//! From a mel spectrogram to states, and to keys and values for the decoder: HF `WhisperEncoder`.

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{Activation, AttentionMask, AttentionMetadata, activate, add, recycle};

use super::attention::{KvProjection, SelfAttention};
use super::block::{FeedForward, Normed};
use super::config::{NORM, WhisperConfig};
use crate::model::audio::conv::{Conv, Stride};
use crate::model::layers::Norm;
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

/// The encoder, with the projections of the decoder that read its states.
#[derive(Debug)]
pub(super) struct Encoder {
    convs: [Conv; 2],
    activation: Activation,
    /// `[num_frames, hidden_size]`: added to the frames.
    positions: Tensor<2>,
    layers: Vec<Layer>,
    norm: Norm,
    for_decoder: Vec<KvProjection>,
    /// The shape of a spectrogram: bins, and times.
    input: [usize; 2],
    device: Device,
}

#[derive(Debug)]
struct Layer {
    attention: Normed<SelfAttention>,
    feed_forward: Normed<FeedForward>,
}

impl Encoder {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &WhisperConfig,
    ) -> Result<Self, ModelError> {
        const MODULE: &str = "model.encoder";
        let WhisperConfig { hidden_size, num_mel_bins, num_frames, .. } = *config;
        let mut conv = |name: &str, inputs, stride| {
            Conv::load(loader, &format!("{MODULE}.{name}"), [hidden_size, inputs], stride)
        };
        let convs =
            [conv("conv1", num_mel_bins, Stride::One)?, conv("conv2", hidden_size, Stride::Two)?];
        let shape = [num_frames, hidden_size];
        let positions = loader.values(&format!("{MODULE}.embed_positions.weight"), &shape)?;
        let layers = (0..config.encoder.num_layers)
            .map(|index| Layer::load(loader, config, &format!("{MODULE}.layers.{index}")));
        let layers = layers.collect::<Result<_, _>>()?;
        let for_decoder = (0..config.decoder.num_layers).map(|index| {
            let module = format!("model.decoder.layers.{index}.encoder_attn");
            KvProjection::load(loader, &module, hidden_size)
        });
        let for_decoder = for_decoder.collect::<Result<_, _>>()?;
        Ok(Self {
            convs,
            activation: config.activation,
            positions: Tensor::from_data(TensorData::new(positions, shape), loader.device()),
            layers,
            norm: Norm::load(loader, &format!("{MODULE}.layer_norm"), hidden_size, NORM)?,
            for_decoder,
            input: [num_mel_bins, 2 * num_frames],
            device: loader.device().clone(),
        })
    }

    /// Returns the states of a spectrogram, `[2 * num_frames, num_mel_bins]`.
    fn states(&self, mel: Tensor<2>) -> Tensor<2> {
        let x = self.convs.iter().fold(mel, |x, conv| activate(conv.forward(x), self.activation));
        let [frames, _] = x.dims();
        let frames = AttentionMetadata {
            query_start_loc: vec![0, frames as u32],
            seq_lens: vec![frames as u32],
            positions: (0..frames as u32).collect(),
            ..AttentionMetadata::default()
        };
        let stream = (add(x, self.positions.clone()), None);
        let (x, stream) =
            self.layers.iter().fold(stream, |stream, layer| layer.forward(stream, &frames));
        let (states, stream) = self.norm.add_forward(x, stream);
        recycle(stream);
        states
    }

    /// Returns the spectrogram of an item with a row for each time.
    fn spectrogram(&self, item: &MediaInput<'_>) -> Result<Tensor<2>, String> {
        let [bins, times] = self.input;
        let [MediaTensorView { shape, data: MediaData::F32(bytes) }] = &item.tensors[..] else {
            return Err(format!(
                "a sound is one spectrogram of f32, not {} tensors",
                item.tensors.len()
            ));
        };
        if *shape != [bins, times] || bytes.len() != 4 * bins * times {
            return Err(format!("a spectrogram is {bins} bins at {times} times, not {shape:?}"));
        }
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        let by_time =
            (0..times).flat_map(|time| values.iter().skip(time).step_by(times).copied()).collect();
        Ok(Tensor::from_data(TensorData::new::<f32, _>(by_time, [times, bins]), &self.device))
    }

    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let embeddings = self.states(self.spectrogram(item)?);
        let by_layer = self.for_decoder.iter().flat_map(|layer| layer.of(&embeddings)).collect();
        Ok(EncoderOutput { embeddings, by_layer })
    }
}

impl MediaEncoder for Encoder {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, _: u32) -> bool {
        false
    }

    fn mapped_bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(Layer::mapped_bytes).sum();
        layers + self.for_decoder.iter().map(KvProjection::mapped_bytes).sum::<u64>()
    }
}

impl Layer {
    fn load(
        loader: &mut WeightLoader<'_>,
        config: &WhisperConfig,
        layer: &str,
    ) -> Result<Self, ModelError> {
        let (hidden, stack) = (config.hidden_size, &config.encoder);
        let sizes = [hidden, stack.num_heads];
        let module = format!("{layer}.self_attn");
        let attention = SelfAttention::load(loader, &module, sizes, AttentionMask::Both)?;
        let mlp = FeedForward::load(loader, layer, hidden, stack, config.activation)?;
        let before_attention = format!("{layer}.self_attn_layer_norm");
        Ok(Self {
            attention: Normed::new(loader, &before_attention, hidden, attention)?,
            feed_forward: Normed::new(loader, &format!("{layer}.final_layer_norm"), hidden, mlp)?,
        })
    }

    fn forward(
        &self,
        stream: (Tensor<2>, Option<Tensor<2>>),
        frames: &AttentionMetadata,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let stream = self.attention.forward(stream, |part, x| part.of_frames(x, frames));
        self.feed_forward.forward(stream, |part, x| part.forward(x, Adapters::none()))
    }

    fn mapped_bytes(&self) -> u64 {
        self.attention.part.mapped_bytes() + self.feed_forward.part.mapped_bytes()
    }
}
