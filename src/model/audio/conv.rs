//! Convolutions along time: HF `nn.Conv1d` with a kernel of three, as products with windows, with a
//! kernel for each channel, and with a kernel of one.

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{LinearWeight, WeightVector, WeightView, add, linear};

use crate::model::ModelError;
use crate::model::weight_loader::{WeightLoader, refused};

/// Taps of a kernel.
const TAPS: usize = 3;

/// A convolution with a kernel of three and one row of zeros at each end.
#[derive(Debug)]
pub(super) struct Conv {
    /// `[outputs, 3 * inputs]`: the taps one after the other.
    weight: LinearWeight,
    bias: WeightVector,
    stride: Stride,
}

/// The distance between windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stride {
    /// One window for each row.
    One,
    /// One window for each two rows.
    Two,
}

impl Conv {
    /// Loads `{module}.weight`, `[outputs, inputs, 3]`, and `{module}.bias`, `[outputs]`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [outputs, inputs]: [usize; 2],
        stride: Stride,
    ) -> Result<Self, ModelError> {
        let stored = loader.values(&format!("{module}.weight"), &[outputs, inputs, TAPS])?;
        let mut by_tap = Vec::with_capacity(stored.len());
        for kernel in stored.chunks_exact(inputs * TAPS) {
            let taps = (0..TAPS).flat_map(|tap| kernel.iter().skip(tap).step_by(TAPS));
            by_tap.extend(taps.copied());
        }
        let (dtype, device) = (loader.dtype(), loader.device());
        let weight = LinearWeight::pack(&[WeightView::F32(&by_tap)], TAPS * inputs, dtype, device)
            .map_err(refused(module))?
            .with_activations(loader.activations())
            .with_tensor_cores(loader.tensor_cores());
        Ok(Self { weight, bias: loader.vector(&format!("{module}.bias"), outputs)?, stride })
    }

    /// Maps `[rows, inputs]` to `[rows / stride, outputs]`. The stride divides the rows.
    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        linear(windows(x, self.stride), &self.weight, Some(&self.bias))
    }
}

/// Returns the window around each row, or around each second row from the first on. A window is the
/// row before, the row itself, and the row after, side by side.
fn windows(x: Tensor<2>, stride: Stride) -> Tensor<2> {
    let ([rows, width], device) = (x.dims(), x.device());
    let zeros = || Tensor::zeros([1, width], &device);
    match stride {
        Stride::One => {
            let before = Tensor::cat(vec![zeros(), x.clone().slice([0..rows - 1, 0..width])], 0);
            let after = Tensor::cat(vec![x.clone().slice([1..rows, 0..width]), zeros()], 0);
            Tensor::cat(vec![before, x, after], 1)
        }
        Stride::Two => {
            let pairs = x.reshape([rows / 2, 2 * width]);
            let seconds = pairs.clone().slice([0..rows / 2 - 1, width..2 * width]);
            let before = Tensor::cat(vec![zeros(), seconds], 0);
            Tensor::cat(vec![before, pairs], 1)
        }
    }
}

/// A convolution of each channel by itself.
#[derive(Debug)]
pub(super) struct Depthwise {
    /// The factors of the channels at each element of the kernel, `[1, channels]`.
    taps: Vec<Tensor<2>>,
    bias: Tensor<2>,
    /// The elements of the kernel before that of a row itself.
    before: usize,
}

impl Depthwise {
    /// Returns a convolution with the kernels `stored`, `[channels, kernel_size]`, and `biases`,
    /// `[channels]`. `before` elements of a kernel, less than all, are of earlier rows.
    pub(super) fn new(stored: &[f32], biases: Vec<f32>, before: usize, device: &Device) -> Self {
        let channels = biases.len();
        let kernel_size = stored.len() / channels.max(1);
        let row = |values: Vec<f32>| {
            Tensor::<2>::from_data(TensorData::new(values, [1, channels]), device)
        };
        let tap = |at: usize| stored.iter().skip(at).step_by(kernel_size).copied().collect();
        Self { taps: (0..kernel_size).map(|at| row(tap(at))).collect(), bias: row(biases), before }
    }

    /// Maps `[rows, channels]` to the same shape. There are zeros beyond both ends.
    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let ([count, width], device) = (x.dims(), x.device());
        let zeros = |rows: usize| {
            let zeros = || Tensor::<2>::zeros([rows, width], &device);
            (rows > 0).then(zeros)
        };
        let behind = self.taps.len() - 1 - self.before;
        let parts = zeros(self.before).into_iter().chain([x]).chain(zeros(behind));
        let padded = Tensor::cat(parts.collect(), 0);
        let product =
            |at: usize| padded.clone().slice([at..at + count, 0..width]).mul(self.taps[at].clone());
        let sum = (1..self.taps.len()).fold(product(0), |sum, at| add(sum, product(at)));
        sum + self.bias.clone()
    }
}

/// Loads the convolution `module` with a kernel of one, whose outputs are two halves. The second
/// half, the gate, comes first in the result: the weight, and the biases, `[outputs]`.
/// `{module}.weight` is `[outputs, inputs, 1]`.
pub(super) fn gate_first(
    loader: &mut WeightLoader<'_>,
    module: &str,
    [outputs, inputs]: [usize; 2],
) -> Result<(LinearWeight, Vec<f32>), ModelError> {
    let swapped = |values: Vec<f32>| {
        let (first, second) = values.split_at(values.len() / 2);
        [second, first].concat()
    };
    let weight = loader.packed(module, [outputs, inputs], |loader| {
        let values = loader.values(&format!("{module}.weight"), &[outputs, inputs, 1])?;
        let values = swapped(values);
        let view = [WeightView::F32(&values)];
        let packed = LinearWeight::pack(&view, inputs, loader.dtype(), loader.device());
        Ok(packed.map_err(refused(module))?.with_tensor_cores(loader.tensor_cores()))
    })?;
    let biases = loader.values(&format!("{module}.bias"), &[outputs])?;
    Ok((weight, swapped(biases)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_reach_over_the_ends_with_zeros() {
        let x = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [4, 1]);
        let x = Tensor::<2>::from_data(x, &Device::flex());
        let of = |stride| windows(x.clone(), stride).into_data().try_to_vec::<f32>().unwrap();
        let all = [0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 3.0, 4.0, 0.0];
        assert_eq!(of(Stride::One), all);
        assert_eq!(of(Stride::Two), [0.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn kernels_of_channels_reach_to_both_sides() {
        let x = TensorData::new(vec![1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0], [3, 2]);
        let x = Tensor::<2>::from_data(x, &Device::flex());
        let of = |before: usize| {
            let stored = [1.0, 2.0, 4.0, 0.0, 1.0, 0.0];
            let conv = Depthwise::new(&stored, vec![0.5, 0.0], before, &Device::flex());
            conv.forward(x.clone()).into_data().try_to_vec::<f32>().unwrap()
        };
        assert_eq!(of(1), [10.5, 10.0, 17.5, 20.0, 8.5, 30.0]);
        assert_eq!(of(2), [4.5, 0.0, 10.5, 10.0, 17.5, 20.0]);
    }
}
