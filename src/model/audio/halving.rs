//! Convolutions that halve the times and the bins of a spectrogram, once each: HF
//! `Phi4MultimodalAudioNemoConvSubsampling`.
//!
//! | tensor | shape |
//! |---|---|
//! | spectrogram | `[times, bins]` |
//! | states after a convolution | `[times · bins, channels]`: the bins of the first time first |
//! | result | `[times, hidden_size]` |
//!
//! The states of a long sound are large, so that they are computed for some results at a time.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{
    Activation, LinearWeight, WeightVector, WeightView, activate, add, linear, select_rows,
};

use super::phi4_config::Phi4Sounds;
use crate::model::layers::{Linear, by_patches};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// Results that are computed at a time.
const BLOCK: usize = 64;
/// Elements on a side of a kernel.
const SIDE: usize = 3;

/// The convolutions with the projection behind them.
#[derive(Debug)]
pub(super) struct Halvings {
    /// `[channels, 9]`: that of the spectrogram itself.
    first: Linear,
    others: Vec<Halving>,
    activation: Activation,
    /// `[hidden_size, bins · channels]`.
    weight: LinearWeight,
    bias: WeightVector,
    device: Device,
}

/// A convolution of each channel, and one of the channels of each place.
#[derive(Debug)]
struct Halving {
    /// The factors of the channels at each element of the kernel, `[1, channels]`.
    taps: Vec<Tensor<2>>,
    bias: Tensor<2>,
    mixing: Linear,
}

/// The states of some of the times of a sound.
struct States {
    values: Tensor<2>,
    times: Range<usize>,
    bins: usize,
}

/// Returns the two numbers that a convolution of a whole sound halves, rounded up.
fn halved([times, bins]: [usize; 2]) -> [usize; 2] {
    [times.div_ceil(2), bins.div_ceil(2)]
}

impl Halvings {
    /// Loads the convolutions of `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &Phi4Sounds,
    ) -> Result<Self, ModelError> {
        let Phi4Sounds { channels, hidden_size, num_halvings, num_mel_bins, .. } = *config;
        let conv = |index: usize| format!("{module}.conv.{index}");
        let shape = [channels, 1, SIDE, SIDE];
        let first = Linear::of_patches(loader, &conv(0), &shape, true)?;
        // An activation without weights has a place in the list of modules, too.
        let others = (1..num_halvings)
            .map(|at| Halving::load(loader, [&conv(3 * at - 1), &conv(3 * at)], channels));
        let others = others.collect::<Result<_, _>>()?;
        let bins = (0..num_halvings).fold(num_mel_bins, |bins, _| bins.div_ceil(2));
        let out = format!("{module}.out");
        let weight = loader.packed(&out, [hidden_size, channels * bins], |loader| {
            let name = format!("{out}.weight");
            let stored = loader.values(&name, &[hidden_size, channels * bins])?;
            // The checkpoint has the bins of a channel side by side.
            let values = by_patches(&stored, [channels, bins]);
            let view = [WeightView::F32(&values)];
            let (dtype, device) = (loader.dtype(), loader.device());
            let packed = LinearWeight::pack(&view, channels * bins, dtype, device);
            Ok(packed.map_err(refused(&out))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        Ok(Self {
            first,
            others,
            activation: config.first_activation,
            weight,
            bias: loader.vector(&format!("{out}.bias"), hidden_size)?,
            device: loader.device().clone(),
        })
    }

    /// Returns the states of a spectrogram of `times` and `bins`.
    pub(super) fn forward(&self, mel: &[f32], size: [usize; 2]) -> Tensor<2> {
        let mut sizes = vec![size];
        for _ in 0..=self.others.len() {
            sizes.push(halved(sizes[sizes.len() - 1]));
        }
        let num_times = sizes[sizes.len() - 1][0];
        let blocks = (0..num_times).step_by(BLOCK);
        let block = |start: usize| self.block(mel, &sizes, start..(start + BLOCK).min(num_times));
        Tensor::cat(blocks.map(block).collect(), 0)
    }

    /// Returns the results at `times`. `sizes` are those of the spectrogram and of all states.
    fn block(&self, mel: &[f32], sizes: &[[usize; 2]], times: Range<usize>) -> Tensor<2> {
        let count = times.len();
        // Those of the first states come last.
        let mut ranges = vec![times];
        for size in sizes[1..sizes.len() - 1].iter().rev() {
            let Range { start, end } = ranges[ranges.len() - 1].clone();
            ranges.push((2 * start).saturating_sub(1)..(2 * end).min(size[0]));
        }
        let mut ranges = ranges.into_iter().rev();
        let mut states = self.first(mel, sizes[0], ranges.next().unwrap_or(0..count));
        for ((halving, size), times) in self.others.iter().zip(&sizes[1..]).zip(ranges) {
            states = halving.forward(states, size[0], times, &self.device);
            states.values = activate(states.values, self.activation);
        }
        let [rows, channels] = states.values.dims();
        let x = states.values.reshape([count, rows / count * channels]);
        linear(x, &self.weight, Some(&self.bias))
    }

    /// Returns the states after the first convolution.
    fn first(&self, mel: &[f32], [num_times, bins]: [usize; 2], times: Range<usize>) -> States {
        let mut windows = Vec::with_capacity(times.len() * bins.div_ceil(2) * SIDE * SIDE);
        for time in times.clone() {
            for bin in 0..bins.div_ceil(2) {
                windows.extend(
                    places([time, bin], [num_times, bins])
                        .map(|place| place.map_or(0.0, |[time, bin]| mel[time * bins + bin])),
                );
            }
        }
        let rows = windows.len() / (SIDE * SIDE);
        let data = TensorData::new(windows, [rows, SIDE * SIDE]);
        let x = self.first.forward(Tensor::from_data(data, &self.device), Adapters::none());
        States { values: activate(x, self.activation), times, bins: bins.div_ceil(2) }
    }
}

/// Returns the places of a kernel around an output, those outside as none.
fn places(
    [time, bin]: [usize; 2],
    [num_times, num_bins]: [usize; 2],
) -> impl Iterator<Item = Option<[usize; 2]>> {
    (0..SIDE * SIDE).map(move |at| {
        let time = (2 * time + at / SIDE).checked_sub(1).filter(|time| *time < num_times)?;
        let bin = (2 * bin + at % SIDE).checked_sub(1).filter(|bin| *bin < num_bins)?;
        Some([time, bin])
    })
}

impl Halving {
    fn load(
        loader: &mut WeightLoader<'_>,
        [each, mixing]: [&str; 2],
        channels: usize,
    ) -> Result<Self, ModelError> {
        let stored = loader.values(&format!("{each}.weight"), &[channels, 1, SIDE, SIDE])?;
        let bias = loader.values(&format!("{each}.bias"), &[channels])?;
        let device = loader.device().clone();
        let row = |values: Vec<f32>| {
            let data = TensorData::new(values, [1, channels]);
            Tensor::<2>::from_data(data, &device)
        };
        let tap = |at: usize| stored.iter().skip(at).step_by(SIDE * SIDE).copied().collect();
        Ok(Self {
            taps: (0..SIDE * SIDE).map(|at| row(tap(at))).collect(),
            bias: row(bias),
            mixing: Linear::of_patches(loader, mixing, &[channels, channels, 1, 1], true)?,
        })
    }

    /// Returns the states at `times`, before the activation. `num_times` are those of the whole
    /// sound before.
    fn forward(
        &self,
        states: States,
        num_times: usize,
        times: Range<usize>,
        device: &Device,
    ) -> States {
        let States { values, times: known, bins } = states;
        let [rows, channels] = values.dims();
        // The last row stands for all places outside.
        let values = Tensor::cat(vec![values, Tensor::zeros([1, channels], device)], 0);
        let mut index = vec![Vec::new(); SIDE * SIDE];
        for time in times.clone() {
            for bin in 0..bins.div_ceil(2) {
                let around = places([time, bin], [num_times, bins]);
                for (rows_of_tap, place) in index.iter_mut().zip(around) {
                    let row = place.map_or(rows, |[time, bin]| (time - known.start) * bins + bin);
                    rows_of_tap.push(row as u32);
                }
            }
        }
        let product =
            |at: usize| select_rows(values.clone(), &index[at]).mul(self.taps[at].clone());
        let sum = (1..SIDE * SIDE).fold(product(0), |sum, at| add(sum, product(at)));
        let values = self.mixing.forward(sum + self.bias.clone(), Adapters::none());
        States { values, times, bins: bins.div_ceil(2) }
    }
}

impl Halvings {
    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.first.mapped_bytes()
            + self.weight.mapped_bytes() as u64
            + self.others.iter().map(|it| it.mixing.mapped_bytes()).sum::<u64>()
    }
}
