//! Linear layers: `y = x Wᵀ + b`.
//!
//! | | |
//! |---|---|
//! | shapes | x `[num_tokens, in]`, W `[out, in]`, b `[out]`, y `[num_tokens, out]` |
//! | dtypes | x, b, y f32; W f32 or bf16; sums f32 |
//! | bytes moved | `out · in · sizeof(W)` once for every 480 rows, plus x once for every four panels, and y once |
//! | order of a sum | `in` is cut in blocks of [`pack::K_BLOCK`]; a block is summed in order from zero, blocks are added in order (AMX: all inputs in the order of its tiles). Nothing else enters: tiles, panels, pieces and threads only choose which sums are computed together, so a row's bytes do not depend on the batch |
//! | tolerance | f32: `1e-5 · Σ|x w|` against f64; bf16 weights: the same against f64 over the rounded operands (AVX-512 bf16 and AMX round x to bf16 too, and then keep products exact) |

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocked;
pub(crate) mod cpu;
mod micro;
mod output;
mod pack;
mod product;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::device::require_cpu;
use crate::hot_ops::HotOps;
use crate::{KernelError, WeightDtype, WeightView};
use pack::PackedWeight;

/// A weight matrix in the layout that its device multiplies fastest; packed once at load.
#[derive(Debug)]
pub struct LinearWeight {
    storage: LinearStorage,
    out_features: usize,
    in_features: usize,
}

/// Where the elements live.
#[derive(Debug)]
enum LinearStorage {
    Cpu(PackedWeight),
}

impl LinearWeight {
    /// Packs `parts`, each a row-major `[out_i, in_features]`, stacked along the outputs (q, k and
    /// v; gate and up), keeping elements as `dtype`.
    ///
    /// # Errors
    /// A part that is no whole number of rows, no rows at all, a device without kernels, or too
    /// little memory.
    pub fn pack(
        parts: &[WeightView<'_>],
        in_features: usize,
        dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "linear weight";
        require_cpu(device, WHAT)?;
        KernelError::require(in_features > 0, WHAT, "in_features", 0, "at least 1")?;
        for (i, part) in parts.iter().enumerate() {
            let whole = part.len() / in_features * in_features;
            KernelError::require_len(WHAT, format!("parts[{i}]"), part.len(), whole)?;
        }
        let out_features = parts.iter().map(WeightView::len).sum::<usize>() / in_features;
        KernelError::require(out_features > 0, WHAT, "out_features", 0, "at least 1")?;
        let storage = LinearStorage::Cpu(PackedWeight::new(parts, in_features, dtype)?);
        Ok(Self { storage, out_features, in_features })
    }

    /// Width of the result.
    #[must_use]
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Width of the input.
    #[must_use]
    pub fn in_features(&self) -> usize {
        self.in_features
    }
}

/// `x Wᵀ + b` for x `[num_tokens, in]` f32; the result is `[num_tokens, out]` f32.
///
/// # Panics
/// If the widths of `x`, `weight` and `bias` disagree.
#[must_use]
pub fn linear(x: Tensor<2>, weight: &LinearWeight, bias: Option<&Tensor<1>>) -> Tensor<2> {
    let x = x.into_dispatch();
    Tensor::from_dispatch(match bias {
        None => Dispatch::linear(x, weight),
        Some(bias) => Dispatch::linear_bias(x, bias.clone().into_dispatch(), weight),
    })
}

/// `silu(gate) · up` for `[gate, up] = x Wᵀ`, x `[num_tokens, in]` f32; the result is
/// `[num_tokens, out / 2]` f32. The bytes are those of [`swiglu`](crate::swiglu()) after [`linear`],
/// which saves a pass over gate and up.
///
/// # Panics
/// If the widths of `x` and `weight` disagree, or the outputs are no two halves.
#[must_use]
pub fn linear_swiglu(x: Tensor<2>, weight: &LinearWeight) -> Tensor<2> {
    assert!(weight.out_features.is_multiple_of(2), "linear_swiglu: odd {}", weight.out_features);
    Tensor::from_dispatch(Dispatch::linear_swiglu(x.into_dispatch(), weight))
}
