//! The tower of sounds of Qwen3-ASR and Qwen3-Omni with its projector: HF `Qwen3ASREncoder` and
//! `Qwen3OmniMoeAudioEncoder`.
//!
//! | tensor | shape |
//! |---|---|
//! | parts of an item's spectrogram | `[num_mel_bins, 100]` each; the last may be shorter |
//! | states of a place in a part | `[channels]`: times and bins are halved three times |
//! | states of a part | `[13, hidden_size]`; of a shorter one the first |
//! | embeddings | `[states, text_hidden_size]` |
//!
//! The convolutions see one part, which is filled with zeros. The layers see some parts together. A
//! sound of Qwen3-Omni of one short part is not filled: zeros have other states than the end.

use std::borrow::Cow;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{
    Activation, AttentionMetadata, LinearWeight, WeightVector, WeightView, activate, add, linear,
    select_rows,
};

use super::audio_tower::{Layer, TowerConfig, sinusoids};
use crate::model::config::{ConfigError, Fields};
use crate::model::encoder_decoder::NORM;
use crate::model::layers::{Linear, Norm, Part, by_patches};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{
    Adapters, EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

/// Times of a part. HF processors count by this number, whatever the config says.
pub(crate) const TIMES: usize = 100;
/// States of a whole part.
const STATES: usize = 13;
/// Convolutions. Each halves times and bins.
const CONVS: usize = 3;
/// Elements on a side of a kernel.
const SIDE: usize = 3;

/// Returns the states of a sound of so many times.
pub(crate) fn num_states(times: usize) -> usize {
    times / TIMES * STATES + halved(times % TIMES)
}

/// Returns a size after all convolutions.
fn halved(size: usize) -> usize {
    (0..CONVS).fold(size, |size, _| size.div_ceil(2))
}

/// The sizes of the tower beside those of its layers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartConfig {
    /// Channels of the convolutions.
    channels: usize,
    /// Parts whose states see each other.
    parts_together: usize,
    /// Whether the only part of a short sound is filled.
    fills_only: bool,
}

impl PartConfig {
    /// Reads the fields of `audio_config`. `fills_only` says whether the only part of a short sound
    /// is filled.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, fills_only: bool) -> Result<Self, ConfigError> {
        const HALF: &str = "n_window";
        const TOGETHER: &str = "n_window_infer";
        const POSITIONS: &str = "max_position_embeddings";
        if fields.size(HALF)?.is_some_and(|half| 2 * half != TIMES) {
            return Err(fields.invalid(HALF, &format!("{}", TIMES / 2)));
        }
        if fields.size(POSITIONS)?.is_some_and(|positions| positions < STATES) {
            return Err(fields.invalid(POSITIONS, &format!("{STATES} or more")));
        }
        let together = fields.size(TOGETHER)?.unwrap_or(8 * TIMES);
        if !together.is_multiple_of(TIMES) {
            return Err(fields.invalid(TOGETHER, &format!("a multiple of {TIMES}")));
        }
        let channels = fields.size("downsample_hidden_size")?.unwrap_or(480);
        Ok(Self { channels, parts_together: together / TIMES, fills_only })
    }
}

/// The places of the tower's modules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modules<'m> {
    pub(super) encoder: &'m str,
    pub(super) projector: &'m str,
    /// The names of the projector's layers.
    pub(super) layers: [&'m str; 2],
}

/// The encoder of sounds.
#[derive(Debug)]
pub(super) struct Qwen3Hearing {
    convs: Vec<Conv2d>,
    /// `[hidden_size, bins · channels]`.
    out: LinearWeight,
    /// `[STATES, hidden_size]`.
    positions: Tensor<2>,
    layers: Vec<Layer>,
    norm: Norm,
    projector: [Linear; 2],
    activation: Activation,
    num_mel_bins: usize,
    parts_together: usize,
    fills_only: bool,
    placeholder: u32,
    device: Device,
}

/// A convolution over times and bins in steps of two.
#[derive(Debug)]
struct Conv2d {
    /// `[channels, 9 · inputs]`: the inputs of one element of the kernel side by side.
    weight: LinearWeight,
    bias: WeightVector,
    /// Times and bins of a filled part.
    size: [usize; 2],
    /// The row of the input at each element of the kernel, for each output. One behind the last
    /// row stands for places outside.
    rows: Vec<Vec<u32>>,
}

impl Qwen3Hearing {
    /// Loads the tower and the projector.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        modules: Modules<'_>,
        config: &TowerConfig,
        parts: PartConfig,
        outputs: usize,
        placeholder: u32,
    ) -> Result<Self, ModelError> {
        let Modules { encoder, projector, layers: [first, second] } = modules;
        let TowerConfig { hidden_size, num_mel_bins, activation, .. } = *config;
        let PartConfig { channels, parts_together, fills_only } = parts;
        let (mut size, mut inputs, mut convs) = ([TIMES, num_mel_bins], 1, Vec::new());
        for index in 1..=CONVS {
            let module = format!("{encoder}.conv2d{index}");
            convs.push(Conv2d::load(loader, &module, [channels, inputs], size)?);
            (size, inputs) = (size.map(|size| size.div_ceil(2)), channels);
        }
        let bins = size[1];
        let out =
            columns(loader, &format!("{encoder}.conv_out"), &[hidden_size], [channels, bins])?;
        let positions = TensorData::new(sinusoids(STATES, hidden_size), [STATES, hidden_size]);
        let positions = Tensor::from_data(positions, loader.device());
        let layers = (0..config.stack.num_layers).map(|index| {
            let layer = format!("{encoder}.layers.{index}");
            Layer::load(loader, config, &layer, None, Linear::of_media)
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = Norm::load(loader, &format!("{encoder}.ln_post"), hidden_size, NORM)?;
        let mut layer = |name: &str, width: usize| {
            let part = [Part::new(format!("{projector}.{name}"), width)];
            Linear::of_media(loader, &part, hidden_size, true)
        };
        let projector = [layer(first, hidden_size)?, layer(second, outputs)?];
        let device = loader.device().clone();
        Ok(Self {
            convs,
            out,
            positions,
            layers,
            norm,
            projector,
            activation,
            num_mel_bins,
            parts_together,
            fills_only,
            placeholder,
            device,
        })
    }

    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let count = item.tensors.len();
        let mut states = Vec::with_capacity(count);
        for (index, tensor) in item.tensors.iter().enumerate() {
            let is_filled = self.fills_only || count > 1;
            let (mel, filled, times) = self.part(tensor, index + 1 == count, is_filled)?;
            states.push(self.states(mel, filled, halved(times)));
        }
        if states.is_empty() {
            return Err("the item has no spectrogram".to_owned());
        }
        let x = Tensor::cat(states, 0);
        let (found, expected) = (x.dims()[0], item.num_embeds);
        if found != expected {
            return Err(format!("the item has {found} embeddings, and {expected} placeholders"));
        }
        let frames = in_windows(found, self.parts_together * STATES);
        let stream = (x, None);
        let (x, stream) =
            self.layers.iter().fold(stream, |stream, layer| layer.forward(stream, &frames));
        let (x, _) = self.norm.add_forward(x, stream);
        let [first, second] = &self.projector;
        let x = activate(first.forward(x, Adapters::none()), self.activation);
        let embeddings = second.forward(x, Adapters::none());
        Ok(EncoderOutput { embeddings, by_layer: Vec::new() })
    }

    /// Returns a part with a row for each time and bin, its number of times, and that of the sound.
    /// The rest is zeros.
    fn part(
        &self,
        tensor: &MediaTensorView<'_>,
        is_last: bool,
        is_filled: bool,
    ) -> Result<(Tensor<2>, usize, usize), String> {
        let bins = self.num_mel_bins;
        let MediaTensorView { shape, data: MediaData::F32(bytes) } = tensor else {
            return Err("a spectrogram has elements of f32".to_owned());
        };
        let times = shape.get(1).copied().unwrap_or_default();
        let is_whole = times == TIMES || is_last && (1..TIMES).contains(&times);
        if !is_whole || **shape != [bins, times] || bytes.len() != 4 * bins * times {
            return Err(format!(
                "a part of a sound is {bins} bins at {TIMES} times, not {shape:?}"
            ));
        }
        let filled = if is_filled { TIMES } else { times };
        let mut values = vec![0.0; filled * bins];
        for (at, value) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let (bin, time) = (at / times, at % times);
            values[time * bins + bin] = f32::from_le_bytes(*value);
        }
        let data = TensorData::new(values, [filled * bins, 1]);
        Ok((Tensor::from_data(data, &self.device), filled, times))
    }

    /// Returns the first `count` states of a part of so many times before the layers.
    fn states(&self, mel: Tensor<2>, times: usize, count: usize) -> Tensor<2> {
        let first = (mel, [times, self.num_mel_bins]);
        let (x, [times, bins]) = self.convs.iter().fold(first, |(x, size), conv| {
            let x = activate(conv.forward(x, size), Activation::Gelu);
            (x, size.map(|size| size.div_ceil(2)))
        });
        let channels = x.dims()[1];
        let x = linear(x.reshape([times, bins * channels]), &self.out, None);
        let width = x.dims()[1];
        let x = add(x, self.positions.clone().slice([0..times, 0..width]));
        x.slice([0..count, 0..width])
    }
}

impl Conv2d {
    /// Loads the convolution `module` over times and bins of `size`.
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [outputs, inputs]: [usize; 2],
        size: [usize; 2],
    ) -> Result<Self, ModelError> {
        let weight = columns(loader, module, &[outputs, inputs], [inputs, SIDE * SIDE])?;
        Ok(Self {
            weight,
            bias: loader.vector(&format!("{module}.bias"), outputs)?,
            size,
            rows: rows(size),
        })
    }

    /// Maps `[times · bins, inputs]` to half as many of both.
    fn forward(&self, x: Tensor<2>, size: [usize; 2]) -> Tensor<2> {
        let width = x.dims()[1];
        let zeros = Tensor::zeros([1, width], &x.device());
        let x = Tensor::cat(vec![x, zeros], 0);
        let rows = match size == self.size {
            true => Cow::Borrowed(&self.rows),
            false => Cow::Owned(rows(size)),
        };
        let places = rows.iter().map(|rows| select_rows(x.clone(), rows)).collect();
        linear(Tensor::cat(places, 1), &self.weight, Some(&self.bias))
    }
}

/// Loads `{module}.weight`, whose outputs come first. The checkpoint has the elements of a channel
/// side by side, and here those of a place are. `[channels, places]` are the columns. A kernel has
/// two axes of places, that of bins first.
fn columns(
    loader: &mut WeightLoader<'_>,
    module: &str,
    shape: &[usize],
    [channels, places]: [usize; 2],
) -> Result<LinearWeight, ModelError> {
    let outputs = shape.first().copied().unwrap_or_default();
    let columns = channels * places;
    loader.packed(module, [outputs, columns], |loader| {
        let stored = match shape {
            [outputs, inputs] => vec![*outputs, *inputs, SIDE, SIDE],
            _ => vec![outputs, columns],
        };
        let values = loader.values(&format!("{module}.weight"), &stored)?;
        let values = by_patches(&values, [channels, places]);
        let view = [WeightView::F32(&values)];
        let packed = LinearWeight::pack(&view, columns, loader.dtype(), loader.device());
        Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
    })
}

/// Returns the rows of the input at each element of a kernel, that of bins first. A row is a time
/// and a bin of `[times, bins]`.
fn rows([times, bins]: [usize; 2]) -> Vec<Vec<u32>> {
    let outside = times * bins;
    let of_element = |element: usize| {
        let row = |time: usize, bin: usize| {
            let bin = (2 * bin + element / SIDE).checked_sub(1).filter(|bin| *bin < bins)?;
            let time = (2 * time + element % SIDE).checked_sub(1).filter(|time| *time < times)?;
            Some(time * bins + bin)
        };
        let outputs = (0..times.div_ceil(2))
            .flat_map(|time| (0..bins.div_ceil(2)).map(move |bin| (time, bin)));
        outputs.map(|(time, bin)| row(time, bin).unwrap_or(outside) as u32).collect()
    };
    (0..SIDE * SIDE).map(of_element).collect()
}

/// Returns the windows of `count` states, which do not see each other. The last may be shorter.
fn in_windows(count: usize, window: usize) -> AttentionMetadata {
    let starts: Vec<usize> = (0..count).step_by(window).collect();
    let lens = starts.iter().map(|start| window.min(count - start) as u32);
    AttentionMetadata {
        query_start_loc: starts.iter().copied().chain([count]).map(|at| at as u32).collect(),
        seq_lens: lens.clone().collect(),
        positions: lens.flat_map(|len| 0..len).collect(),
        ..AttentionMetadata::default()
    }
}

impl MediaEncoder for Qwen3Hearing {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        token_id == self.placeholder
    }

    fn mapped_bytes(&self) -> u64 {
        let convs = self.convs.iter().map(|conv| &conv.weight).chain([&self.out]);
        convs.map(|weight| weight.mapped_bytes() as u64).sum::<u64>()
            + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
            + self.projector.iter().map(Linear::mapped_bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_processor() {
        for (times, states) in [(50, 7), (99, 13), (100, 13), (101, 14), (250, 33), (3_000, 390)] {
            assert_eq!(num_states(times), states, "{times}");
        }
    }

    #[test]
    fn kernels_reach_over_the_ends() {
        let all = rows([3, 2]);
        // Outputs at times 0 and 2, and bin 0. The middle of the kernel is the place itself.
        assert_eq!(all[4], [0, 4]);
        assert_eq!(all[0], [6, 6], "the bin before the first");
        assert_eq!(all[5], [2, 6], "the time behind");
        assert_eq!(all[7], [1, 5], "the bin behind");
    }

    #[test]
    fn the_last_window_is_shorter() {
        let windows = in_windows(5, 2);
        assert_eq!(windows.query_start_loc, [0, 2, 4, 5]);
        assert_eq!(windows.seq_lens, [2, 2, 1]);
        assert_eq!(windows.positions, [0, 1, 0, 1, 0]);
    }
}
