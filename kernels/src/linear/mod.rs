//! Linear layers: `y = x Wᵀ + b`.
//!
//! | | |
//! |---|---|
//! | shapes | x `[num_tokens, in]`, W `[out, in]`, b `[out]`, y `[num_tokens, out]` |
//! | dtypes | x, b, y f32; W f32 or bf16; sums f32 |
//! | bytes moved | `out · in · sizeof(W)` once for every 480 rows, plus x once for every four panels, and y once |
//! | order of a sum | `in` is cut in blocks of [`pack::K_BLOCK`], twice that where bf16 has dot products; a block is summed in order from zero, blocks are added in order (AMX: all inputs in the order of its tiles). Nothing else matters: tiles, panels, pieces and threads only decide which sums are computed together, so a row's bytes do not depend on the batch |
//! | tolerance | f32: `1e-5 · Σ|x w|` against f64; bf16 weights: the same against f64 over the rounded operands (AVX-512 bf16 and AMX round x to bf16 too, and then keep products exact) |

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocked;
pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod fill;
pub(crate) mod groups;
mod micro;
mod output;
mod pack;
mod product;
mod products;
mod quantized;
#[cfg(test)]
mod reference;
mod stored;
#[cfg(test)]
mod tests;
mod tuned;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::{Activation, KernelError, QuantizedMatrix, WeightDtype, WeightVector, WeightView};
use pack::PackedWeight;
#[cfg(feature = "gpu")]
use quantized::CodedMatrix;
use quantized::PackedQuantized;
pub use quantized::{ActivationDtype, QuantizationScheme};
pub use stored::{PackedSections, packed_layout};
pub use tuned::{TunedProduct, adopt_tuned_products, has_tensor_cores, tuned_products};

/// The name of a weight in errors.
const WHAT: &str = "linear weight";

/// A weight matrix in the layout that its device multiplies fastest. It is packed once, at load.
#[derive(Debug)]
pub struct LinearWeight {
    storage: LinearStorage,
    out_features: usize,
    in_features: usize,
}

/// Whether products of many rows may use a GPU's tensor cores. They round the rows to 16 bits, and
/// a row's bytes then depend on the batch. A device without tensor cores and weights of f32 never
/// use them. The CPU's kernels are the same for all of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TensorCores {
    /// They may not: the order of every sum is fixed.
    #[default]
    Off,
    /// By the first routine that takes the shape.
    On,
    /// By the fastest routine, which is measured when a shape first occurs.
    Tuned,
}

/// The elements in memory, by device and form.
#[derive(Debug)]
enum LinearStorage {
    Cpu(PackedWeight),
    CpuQuantized(PackedQuantized),
    #[cfg(feature = "gpu")]
    Cube(cube::CubeWeight),
}

impl LinearWeight {
    /// Packs `parts`, each a row-major `[out_i, in_features]`, stacked along the outputs (q, k and
    /// v; gate and up), keeping elements as `dtype`.
    ///
    /// # Errors
    /// A part that is not a whole number of rows, no rows at all, a device without kernels, or too
    /// little memory.
    pub fn pack(
        parts: &[WeightView<'_>],
        in_features: usize,
        dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let place = Place::of(device, WHAT)?;
        let out_features = stacked_outputs(parts, in_features)?;
        let storage = match place {
            Place::Cpu => LinearStorage::Cpu(PackedWeight::new(parts, in_features, dtype)?),
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                LinearStorage::Cube(cube::CubeWeight::new(parts, in_features, dtype, device)?)
            }
        };
        Ok(Self { storage, out_features, in_features })
    }

    /// Quantizes `parts`, each a row-major `[out_i, in_features]`, stacked along the outputs.
    ///
    /// # Errors
    /// As [`LinearWeight::pack`], or a group size that is not a multiple of 8.
    pub fn quantize(
        parts: &[WeightView<'_>],
        in_features: usize,
        scheme: QuantizationScheme,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let place = Place::of(device, WHAT)?;
        let out_features = stacked_outputs(parts, in_features)?;
        let shape = [out_features, in_features];
        let storage = match place {
            Place::Cpu => {
                LinearStorage::CpuQuantized(PackedQuantized::quantize(parts, shape, scheme)?)
            }
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                let matrix = CodedMatrix::quantizing(parts, shape, scheme)?;
                LinearStorage::Cube(cube::CubeWeight::coded(&matrix, device)?)
            }
        };
        Ok(Self { storage, out_features, in_features })
    }

    /// Packs matrices that are already quantized, stacked along the outputs, for products with
    /// `activations`. GPUs multiply floats in every case. Zero points stay integers.
    ///
    /// Scales and offsets are kept as f16 where f16 holds all of them. For activations of 8 bits,
    /// an f16 may also change each by up to 2⁻¹¹ of a scale. Otherwise they are f32.
    ///
    /// # Errors
    /// No parts; parts that differ in bits, inputs, group size or order; a device without kernels;
    /// or too little memory.
    pub fn pack_quantized(
        parts: Vec<QuantizedMatrix>,
        activations: ActivationDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        match Place::of(device, WHAT)? {
            Place::Cpu => {
                let packed = PackedQuantized::ready_made(&parts, activations)?;
                let [out_features, in_features] = packed.shape();
                Ok(Self { storage: LinearStorage::CpuQuantized(packed), out_features, in_features })
            }
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                let matrix = CodedMatrix::ready_made(&parts)?;
                let [out_features, in_features] = matrix.shape();
                let packed = cube::CubeWeight::coded(&matrix, device)?;
                Ok(Self { storage: LinearStorage::Cube(packed), out_features, in_features })
            }
        }
    }

    /// Returns the weight with products of many rows made as `tensor_cores` says.
    #[must_use]
    #[cfg_attr(not(feature = "gpu"), expect(unused_mut, unused_variables, reason = "no GPUs"))]
    pub fn with_tensor_cores(mut self, tensor_cores: TensorCores) -> Self {
        #[cfg(feature = "gpu")]
        if let LinearStorage::Cube(weight) = self.storage {
            self.storage = LinearStorage::Cube(weight.with_tensor_cores(tensor_cores));
        }
        self
    }

    /// Returns the weight, which now meets `activations`. The default is [`ActivationDtype::Int8`],
    /// also for a weight from sections. A weight that was packed for 8 bits may have rounded
    /// scales. Weights that are not quantized, and GPUs, have no such choice.
    #[must_use]
    pub fn with_activations(mut self, activations: ActivationDtype) -> Self {
        if let LinearStorage::CpuQuantized(packed) = self.storage {
            self.storage = LinearStorage::CpuQuantized(packed.with_activations(activations));
        }
        self
    }

    /// Returns the bytes that a product of one row reads.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match &self.storage {
            LinearStorage::Cpu(PackedWeight::F32(data)) => size_of_val(&data[..]),
            LinearStorage::Cpu(PackedWeight::Bf16(data)) => size_of_val(&data[..]),
            LinearStorage::CpuQuantized(packed) => packed.size_bytes(),
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(packed) => packed.size_bytes(),
        }
    }

    /// Returns the width of the result.
    #[must_use]
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Returns the width of the input.
    #[must_use]
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// Returns whether it holds the elements that it was packed from, and can therefore return rows
    /// of them. [`tied_embedding`](crate::tied_embedding) needs that.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        match &self.storage {
            LinearStorage::Cpu(PackedWeight::F32(_) | PackedWeight::Bf16(_)) => true,
            LinearStorage::CpuQuantized(_) => false,
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(packed) => packed.has_rows(),
        }
    }

    /// Returns whether it is in the CPU's memory.
    pub(crate) fn is_on_cpu(&self) -> bool {
        match &self.storage {
            LinearStorage::Cpu(_) | LinearStorage::CpuQuantized(_) => true,
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(_) => false,
        }
    }

    /// Returns whether one pass can compute products with both.
    fn is_like(&self, other: &Self) -> bool {
        use LinearStorage::{Cpu, CpuQuantized};
        use PackedWeight::{Bf16, F32};
        match (&self.storage, &other.storage) {
            (Cpu(F32(_)), Cpu(F32(_))) | (Cpu(Bf16(_)), Cpu(Bf16(_))) => true,
            (CpuQuantized(one), CpuQuantized(other)) => one.is_like(other),
            _ => false,
        }
    }

    /// Returns the elements.
    ///
    /// # Panics
    /// If they are not dense, or on a GPU.
    fn dense(&self) -> &PackedWeight {
        match &self.storage {
            LinearStorage::Cpu(packed) => packed,
            _ => unreachable!("the weight is not dense, or not on the CPU"),
        }
    }

    /// Returns the integers.
    ///
    /// # Panics
    /// If the weight is dense, or on a GPU.
    fn quantized(&self) -> &PackedQuantized {
        match &self.storage {
            LinearStorage::CpuQuantized(packed) => packed,
            _ => unreachable!("the weight is not quantized, or not on the CPU"),
        }
    }

    /// Returns the weight as GPUs keep it, where it is on a GPU.
    #[cfg(feature = "gpu")]
    pub(crate) fn on_gpu(&self) -> Option<&cube::CubeWeight> {
        match &self.storage {
            LinearStorage::Cube(packed) => Some(packed),
            LinearStorage::Cpu(_) | LinearStorage::CpuQuantized(_) => None,
        }
    }

    /// Copies row `o`, widened exactly, to `row`, `[in_features]`.
    ///
    /// # Panics
    /// If there is no such row, the weight [has none](Self::has_rows), or `row` has another length.
    pub(crate) fn copy_row(&self, o: usize, row: &mut [f32]) {
        assert!(o < self.out_features, "row {o} of {}", self.out_features);
        assert_eq!(row.len(), self.in_features, "length of a row");
        match &self.storage {
            LinearStorage::Cpu(packed) => packed.copy_row(o, row),
            LinearStorage::CpuQuantized(_) => unreachable!("`has_rows` says that it has none"),
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(_) => unreachable!("its rows stay on the device"),
        }
    }
}

/// Returns the outputs of all parts.
fn stacked_outputs(parts: &[WeightView<'_>], in_features: usize) -> Result<usize, KernelError> {
    KernelError::require(in_features > 0, WHAT, "in_features", 0, "at least 1")?;
    for (i, part) in parts.iter().enumerate() {
        let whole = part.len() / in_features * in_features;
        KernelError::require_len(WHAT, format!("parts[{i}]"), part.len(), whole)?;
    }
    let out_features = parts.iter().map(WeightView::len).sum::<usize>() / in_features;
    KernelError::require(out_features > 0, WHAT, "out_features", 0, "at least 1")?;
    Ok(out_features)
}

/// Computes `x Wᵀ + b` for x `[num_tokens, in]` f32. The result is `[num_tokens, out]` f32.
///
/// # Panics
/// If the widths of `x`, `weight` and `bias` disagree.
#[must_use]
pub fn linear(x: Tensor<2>, weight: &LinearWeight, bias: Option<&WeightVector>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::linear(x.into_dispatch(), weight, bias))
}

/// Computes `silu(gate) · up` for `[gate, up] = x Wᵀ`, x `[num_tokens, in]` f32. The result is
/// `[num_tokens, out / 2]` f32. Its bytes equal those of [`swiglu`](crate::swiglu()) after
/// [`linear`], but it saves a pass over gate and up.
///
/// # Panics
/// If the widths of `x` and `weight` disagree, or the number of outputs is odd.
#[must_use]
pub fn linear_swiglu(x: Tensor<2>, weight: &LinearWeight) -> Tensor<2> {
    assert!(weight.out_features.is_multiple_of(2), "linear_swiglu: odd {}", weight.out_features);
    Tensor::from_dispatch(Dispatch::linear_swiglu(x.into_dispatch(), weight))
}

/// Computes `f(x Wᵀ + b)` for x `[num_tokens, in]` f32. The result is `[num_tokens, out]` f32. Its
/// bytes equal those of [`activate`](crate::activate()) after [`linear`]. On the CPU it saves a
/// pass over the result.
///
/// # Panics
/// Where [`linear`] panics.
#[must_use]
pub fn linear_activated(
    x: Tensor<2>,
    weight: &LinearWeight,
    bias: Option<&WeightVector>,
    activation: Activation,
) -> Tensor<2> {
    let x = x.into_dispatch();
    Tensor::from_dispatch(Dispatch::linear_activated(x, weight, bias, activation))
}
