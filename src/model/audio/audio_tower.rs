//! From a mel spectrogram to states: HF `WhisperEncoder`, without its last norm.
//!
//! | tensor | shape |
//! |---|---|
//! | mel spectrogram of an item | `[num_mel_bins, 2 * num_frames]` |
//! | states | `[num_frames, hidden_size]`, or those of the first frames |

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{Activation, AttentionMask, AttentionMetadata, activate, add};

use super::conv::{Conv, Stride};
use crate::model::encoder_decoder::{
    AttentionForm, FeedForward, FeedForwardForm, LoadLinear, Normed, SelfAttention, StackConfig,
    Stream,
};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, MediaData, MediaTensorView, ModelError};

/// The sizes of a tower.
#[derive(Debug, Clone, Copy)]
pub(super) struct TowerConfig {
    pub(super) hidden_size: usize,
    pub(super) num_mel_bins: usize,
    /// States of a spectrogram.
    pub(super) num_frames: usize,
    pub(super) stack: StackConfig,
    /// That of the layers.
    pub(super) activation: Activation,
}

/// A tower.
#[derive(Debug)]
pub(super) struct AudioTower {
    convs: [Conv; 2],
    /// `[num_frames, hidden_size]`: added to the frames.
    positions: Tensor<2>,
    layers: Vec<Layer>,
    /// The shape of a spectrogram: bins, and times.
    input: [usize; 2],
    device: Device,
}

#[derive(Debug)]
struct Layer {
    attention: Normed<SelfAttention>,
    feed_forward: Normed<FeedForward>,
}

impl AudioTower {
    /// Loads the tower `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &TowerConfig,
        linear: LoadLinear,
    ) -> Result<Self, ModelError> {
        let TowerConfig { hidden_size, num_mel_bins, num_frames, .. } = *config;
        let mut conv = |name: &str, inputs, stride| {
            Conv::load(loader, &format!("{module}.{name}"), [hidden_size, inputs], stride)
        };
        let convs =
            [conv("conv1", num_mel_bins, Stride::One)?, conv("conv2", hidden_size, Stride::Two)?];
        let shape = [num_frames, hidden_size];
        let positions = loader.values(&format!("{module}.embed_positions.weight"), &shape)?;
        let layers = (0..config.stack.num_layers)
            .map(|index| Layer::load(loader, config, &format!("{module}.layers.{index}"), linear));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Self {
            convs,
            positions: Tensor::from_data(TensorData::new(positions, shape), loader.device()),
            layers,
            input: [num_mel_bins, 2 * num_frames],
            device: loader.device().clone(),
        })
    }

    /// Returns the states of the first `num_frames` frames of a spectrogram, which see no others.
    /// `mel` is `[2 * num_frames, num_mel_bins]`.
    pub(super) fn states(&self, mel: Tensor<2>, num_frames: usize) -> Stream {
        // Whatever `activation_function` says of the layers.
        let gelu = |x| activate(x, Activation::Gelu);
        let x = self.convs.iter().fold(mel, |x, conv| gelu(conv.forward(x)));
        let [_, width] = x.dims();
        let first = |x: Tensor<2>| x.slice([0..num_frames, 0..width]);
        let frames = AttentionMetadata {
            query_start_loc: vec![0, num_frames as u32],
            seq_lens: vec![num_frames as u32],
            positions: (0..num_frames as u32).collect(),
            ..AttentionMetadata::default()
        };
        let stream = (add(first(x), first(self.positions.clone())), None);
        self.layers.iter().fold(stream, |stream, layer| layer.forward(stream, &frames))
    }

    /// Returns the number of frames of a whole spectrogram.
    pub(super) fn num_frames(&self) -> usize {
        self.input[1] / 2
    }

    /// Returns a spectrogram with a row for each time.
    ///
    /// # Errors
    /// The difference, if it has another form.
    pub(super) fn spectrogram(&self, tensor: &MediaTensorView<'_>) -> Result<Tensor<2>, String> {
        let [bins, times] = self.input;
        let MediaTensorView { shape, data: MediaData::F32(bytes) } = tensor else {
            return Err("a spectrogram has elements of f32".to_owned());
        };
        if **shape != [bins, times] || bytes.len() != 4 * bins * times {
            return Err(format!("a spectrogram is {bins} bins at {times} times, not {shape:?}"));
        }
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        let by_time =
            (0..times).flat_map(|time| values.iter().skip(time).step_by(times).copied()).collect();
        Ok(Tensor::from_data(TensorData::new::<f32, _>(by_time, [times, bins]), &self.device))
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::mapped_bytes).sum()
    }
}

impl Layer {
    fn load(
        loader: &mut WeightLoader<'_>,
        config: &TowerConfig,
        layer: &str,
        linear: LoadLinear,
    ) -> Result<Self, ModelError> {
        let TowerConfig { hidden_size, ref stack, activation, .. } = *config;
        let form = AttentionForm::of_whisper(hidden_size, stack.num_heads);
        let (module, both) = (format!("{layer}.self_attn"), AttentionMask::Both);
        let attention = SelfAttention::load(loader, &module, &form, both, None, linear)?;
        let form = FeedForwardForm::of_bart(hidden_size, stack.intermediate_size, activation);
        let mlp = FeedForward::load(loader, layer, &form, linear)?;
        let before_attention = format!("{layer}.self_attn_layer_norm");
        let before_mlp = format!("{layer}.final_layer_norm");
        Ok(Self {
            attention: Normed::new(loader, &before_attention, hidden_size, attention)?,
            feed_forward: Normed::new(loader, &before_mlp, hidden_size, mlp)?,
        })
    }

    fn forward(&self, stream: Stream, frames: &AttentionMetadata) -> Stream {
        let stream = self.attention.forward(stream, |part, x| part.of_frames(x, frames));
        self.feed_forward.forward(stream, |part, x| part.forward(x, Adapters::none()))
    }

    fn mapped_bytes(&self) -> u64 {
        self.attention.part.mapped_bytes() + self.feed_forward.part.mapped_bytes()
    }
}
