//! Convolutions along time: HF `nn.Conv1d` with a kernel of three, as products with windows.

use burn::tensor::Tensor;
use playhouse_kernels::{LinearWeight, WeightVector, WeightView, linear};

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

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

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
}
