//! From a mel spectrogram to states: HF `WhisperEncoder`, `GlmAsrEncoder` and
//! `Qwen2_5OmniAudioEncoder`, without their last norm.
//!
//! | tensor | shape |
//! |---|---|
//! | mel spectrogram of an item | `[num_mel_bins, 2 * num_frames]`; of Qwen2.5-Omni also fewer |
//! | states | `[num_frames, hidden_size]`, or those of the first frames |

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, KernelError, RotaryTable, activate, add,
};

use super::conv::{Conv, Stride};
use crate::model::encoder_decoder::{
    AttentionForm, FeedForward, FeedForwardForm, LoadLinear, Normed, SelfAttention, StackConfig,
    Stream,
};
use crate::model::layers::rotary::default_frequencies;
use crate::model::weight_loader::{WeightLoader, refused};
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
    pub(super) form: TowerForm,
}

/// The names of a tower's modules, and how its frames get positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TowerForm {
    /// As Whisper: learned vectors are added to the frames.
    Whisper,
    /// As GLM-ASR: the first elements of queries and keys are rotated.
    GlmAsr { theta: f64, rotary_dim: usize },
    /// As Qwen2.5-Omni: sines and cosines are added to the frames. A spectrogram may be shorter.
    /// The layers of Qwen3-ASR have the same names.
    Omni,
}

impl TowerForm {
    /// Returns the name of the norm after the last layer.
    pub(super) fn last_norm(self) -> &'static str {
        match self {
            Self::Whisper => "layer_norm",
            Self::GlmAsr { .. } => "norm",
            Self::Omni => "ln_post",
        }
    }

    /// Returns the names of the norms before attention and feed-forward part.
    fn norms(self) -> [&'static str; 2] {
        match self {
            Self::Whisper | Self::Omni => ["self_attn_layer_norm", "final_layer_norm"],
            Self::GlmAsr { .. } => ["input_layernorm", "post_attention_layernorm"],
        }
    }
}

/// A tower.
#[derive(Debug)]
pub(super) struct AudioTower {
    convs: [Conv; 2],
    /// `[num_frames, hidden_size]`: added to the frames, unless they are rotated.
    positions: Option<Tensor<2>>,
    layers: Vec<Layer>,
    /// The shape of a spectrogram: bins, and times.
    input: [usize; 2],
    /// Whether a spectrogram may have fewer times.
    may_be_short: bool,
    device: Device,
}

/// A layer.
#[derive(Debug)]
pub(super) struct Layer {
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
        let (positions, rotary) = match config.form {
            TowerForm::Whisper => {
                let values = loader.values(&format!("{module}.embed_positions.weight"), &shape)?;
                let values = TensorData::new(values, shape);
                (Some(Tensor::from_data(values, loader.device())), None)
            }
            TowerForm::Omni => {
                let values = TensorData::new(sinusoids(num_frames, hidden_size), shape);
                (Some(Tensor::from_data(values, loader.device())), None)
            }
            TowerForm::GlmAsr { theta, rotary_dim } => {
                let table = rotary_table(theta, rotary_dim, num_frames, loader.device());
                (None, Some(Arc::new(table.map_err(refused("rotary embedding"))?)))
            }
        };
        let layers = (0..config.stack.num_layers).map(|index| {
            let layer = format!("{module}.layers.{index}");
            Layer::load(loader, config, &layer, rotary.clone(), linear)
        });
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Self {
            convs,
            positions,
            layers,
            input: [num_mel_bins, 2 * num_frames],
            may_be_short: config.form == TowerForm::Omni,
            device: loader.device().clone(),
        })
    }

    /// Returns the states of the first `num_frames` frames of a spectrogram, which see no others.
    /// `mel` is `[times, num_mel_bins]`, and two times are a frame.
    pub(super) fn states(&self, mel: Tensor<2>, num_frames: usize) -> Stream {
        // Whatever `activation_function` says of the layers.
        let gelu = |x| activate(x, Activation::Gelu);
        let [first, second] = &self.convs;
        let x = gelu(second.forward(even(gelu(first.forward(mel)))));
        let [_, width] = x.dims();
        let first = |x: Tensor<2>| x.slice([0..num_frames, 0..width]);
        let frames = AttentionMetadata {
            query_start_loc: vec![0, num_frames as u32],
            seq_lens: vec![num_frames as u32],
            positions: (0..num_frames as u32).collect(),
            ..AttentionMetadata::default()
        };
        let x = match &self.positions {
            Some(positions) => add(first(x), first(positions.clone())),
            None => first(x),
        };
        let stream = (x, None);
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
        let most = times;
        let times = match **shape {
            [_, fewer] if self.may_be_short => fewer.clamp(1, most),
            _ => most,
        };
        if **shape != [bins, times] || bytes.len() != 4 * bins * times {
            return Err(format!("a spectrogram is {bins} bins at {most} times, not {shape:?}"));
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
    /// Loads the layer `layer`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &TowerConfig,
        layer: &str,
        rotary: Option<Arc<RotaryTable>>,
        linear: LoadLinear,
    ) -> Result<Self, ModelError> {
        let TowerConfig { hidden_size, ref stack, activation, .. } = *config;
        let form = AttentionForm::of_whisper(hidden_size, stack.num_heads);
        let (form, mlp_module) = match config.form {
            TowerForm::Whisper | TowerForm::Omni => (form, layer.to_owned()),
            TowerForm::GlmAsr { .. } => {
                let names = ["q_proj", "k_proj", "v_proj", "o_proj"];
                (AttentionForm { names, ..form }, format!("{layer}.mlp"))
            }
        };
        let (module, both) = (format!("{layer}.self_attn"), AttentionMask::Both);
        let attention = SelfAttention::load(loader, &module, &form, both, None, linear)?;
        let attention = attention.rotated(rotary);
        let form = FeedForwardForm::of_bart(hidden_size, stack.intermediate_size, activation);
        let mlp = FeedForward::load(loader, &mlp_module, &form, linear)?;
        let [before_attention, before_mlp] =
            config.form.norms().map(|name| format!("{layer}.{name}"));
        Ok(Self {
            attention: Normed::new(loader, &before_attention, hidden_size, attention)?,
            feed_forward: Normed::new(loader, &before_mlp, hidden_size, mlp)?,
        })
    }

    pub(super) fn forward(&self, stream: Stream, frames: &AttentionMetadata) -> Stream {
        let stream = self.attention.forward(stream, |part, x| part.of_frames(x, frames));
        self.feed_forward.forward(stream, |part, x| part.forward(x, Adapters::none()))
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.attention.part.mapped_bytes() + self.feed_forward.part.mapped_bytes()
    }
}

/// Returns rows with one of zeros behind them, if their number is odd. A convolution sees zeros
/// behind the last row.
fn even(x: Tensor<2>) -> Tensor<2> {
    let [rows, width] = x.dims();
    if rows.is_multiple_of(2) {
        return x;
    }
    let zeros = Tensor::zeros([1, width], &x.device());
    Tensor::cat(vec![x, zeros], 0)
}

/// Returns the positions of frames, `[num_frames, width]`: HF `SinusoidsPositionEmbedding`, which
/// computes in float32. `width` is even, and 4 at least.
pub(super) fn sinusoids(num_frames: usize, width: usize) -> Vec<f32> {
    const LONGEST: f64 = 10_000.0;
    let half = width / 2;
    let step = (LONGEST.ln() / (half - 1) as f64) as f32;
    let scale = |index: usize| f64::from(-step * index as f32).exp() as f32;
    let scales: Vec<f32> = (0..half).map(scale).collect();
    let row = |frame: usize| {
        let angles = scales.iter().map(move |scale| f64::from(frame as f32 * scale));
        angles.clone().map(f64::sin).chain(angles.map(f64::cos)).map(|value| value as f32)
    };
    (0..num_frames).flat_map(row).collect()
}

/// Returns the cosines and sines of the positions of a spectrogram's frames.
///
/// # Errors
/// As [`RotaryTable::new`].
fn rotary_table(
    theta: f64,
    rotary_dim: usize,
    num_frames: usize,
    device: &Device,
) -> Result<RotaryTable, KernelError> {
    let frequencies = default_frequencies(theta, rotary_dim);
    let table = |function: fn(f64) -> f64| {
        let row = |position: usize| {
            let angles = frequencies.iter().map(|frequency| position as f32 * frequency);
            angles.map(|angle| function(f64::from(angle)) as f32).collect::<Vec<f32>>()
        };
        (0..num_frames).flat_map(row).collect::<Vec<f32>>()
    };
    RotaryTable::new(table(f64::cos), table(f64::sin), rotary_dim, device)
}
