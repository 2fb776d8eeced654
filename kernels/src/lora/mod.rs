//! Low-rank adapters of linear layers (LoRA, <https://arxiv.org/abs/2106.09685>). One operation
//! serves the rows of many adapters in one batch: `y[row] += scale · B (A x[row])`, with the
//! matrices of the row's adapter.
//!
//! | | |
//! |---|---|
//! | shapes | x `[num_tokens, in]`, y `[num_tokens, out]`, A `[rank, in]`, B `[outputs, rank]`. A layer of several stacked modules has a pair for each, at its own outputs |
//! | dtypes | x, y f32; A, B f32 or bf16 on the CPU, f32 on GPUs; sums f32 |
//! | bytes moved | A and B once for each segment, the segment's rows of x once for four rows of A, and its rows of y once |
//! | order of a sum | `A x`: sixteen lanes by input, folded at the end. `B (A x)`: in the order of the rank, from zero, then added to y. Neither depends on other rows, so a row's bytes do not depend on the batch |
//! | tolerance | `1e-5 · Σ|b| Σ|a x|` against f64 over the rounded matrices |
//!
//! Rows of no segment are not touched: they keep the bytes of the base layer.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod reference;
mod rows;
mod sums;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::{KernelError, WeightDtype};
pub use rows::set_rows;

/// The name of the matrices in errors.
const WHAT: &str = "LoRA weights";

/// The matrices of one adapter for one module of a layer.
#[derive(Debug, Clone, Copy)]
pub struct LoraPair<'a> {
    /// `[rank, in]`, row-major.
    pub a: &'a [f32],
    /// `[outputs, rank]`, row-major.
    pub b: &'a [f32],
    /// The rank.
    pub rank: usize,
    /// The factor of the product.
    pub scale: f32,
    /// The layer's output that is the first of the module.
    pub first_output: usize,
}

/// The matrices of one adapter for one layer, on its device.
#[derive(Debug)]
pub struct LoraWeights {
    storage: Storage,
    blocks: Vec<Block>,
    in_features: usize,
    out_features: usize,
    /// The ranks of all pairs together.
    rank: usize,
}

/// One pair of matrices within the storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// Its first row among those of all A.
    pub(crate) first_rank: usize,
    pub(crate) rank: usize,
    pub(crate) first_output: usize,
    pub(crate) outputs: usize,
    pub(crate) scale: f32,
    /// The place of its B in the storage.
    b_start: usize,
}

/// The elements in memory, by device.
#[derive(Debug)]
enum Storage {
    CpuF32(cpu::Packed<f32>),
    CpuBf16(cpu::Packed<u16>),
    #[cfg(feature = "gpu")]
    Cube(cube::Uploaded),
}

/// The rows of a batch that one adapter changes.
#[derive(Debug, Clone, Copy)]
pub struct LoraSegment<'a> {
    /// The adapter's matrices.
    pub weights: &'a LoraWeights,
    /// The rows, each at most once in all segments.
    pub rows: &'a [u32],
}

impl LoraWeights {
    /// Packs the pairs of a layer `[in_features] → [out_features]`. On the CPU, elements are kept
    /// as `dtype`.
    ///
    /// # Errors
    /// No pairs, a matrix of another length, outputs that the layer lacks, a device without
    /// kernels, or too little memory.
    pub fn pack(
        pairs: &[LoraPair<'_>],
        [out_features, in_features]: [usize; 2],
        dtype: WeightDtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let place = Place::of(device, WHAT)?;
        KernelError::require(!pairs.is_empty(), WHAT, "pairs", 0, "at least 1")?;
        let blocks = blocks(pairs, [out_features, in_features])?;
        let storage = match (place, dtype) {
            (Place::Cpu, WeightDtype::F32) => {
                Storage::CpuF32(cpu::Packed::new(pairs, &blocks, in_features)?)
            }
            (Place::Cpu, _) => Storage::CpuBf16(cpu::Packed::new(pairs, &blocks, in_features)?),
            #[cfg(feature = "gpu")]
            (Place::Cube(device), _) => Storage::Cube(cube::Uploaded::new(pairs, &device)),
        };
        let rank = pairs.iter().map(|pair| pair.rank).sum();
        Ok(Self { storage, blocks, in_features, out_features, rank })
    }

    /// Returns the bytes of the matrices.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match &self.storage {
            Storage::CpuF32(packed) => packed.size_bytes(),
            Storage::CpuBf16(packed) => packed.size_bytes(),
            #[cfg(feature = "gpu")]
            Storage::Cube(uploaded) => uploaded.size_bytes(),
        }
    }
}

/// Returns the places of the pairs in the storage.
pub(crate) fn blocks(
    pairs: &[LoraPair<'_>],
    [out_features, in_features]: [usize; 2],
) -> Result<Vec<Block>, KernelError> {
    let (mut first_rank, mut b_start) = (0, 0);
    let mut blocks = Vec::with_capacity(pairs.len());
    for (i, pair) in pairs.iter().enumerate() {
        let LoraPair { a, b, rank, scale, first_output } = *pair;
        KernelError::require(rank > 0, WHAT, format!("pairs[{i}].rank"), 0, "at least 1")?;
        KernelError::require_len(WHAT, format!("pairs[{i}].a"), a.len(), rank * in_features)?;
        let outputs = b.len() / rank;
        KernelError::require_len(WHAT, format!("pairs[{i}].b"), b.len(), rank * outputs)?;
        let is_within = first_output + outputs <= out_features;
        let (field, last) = (format!("pairs[{i}].first_output"), (first_output + outputs) as u64);
        let accepted = format!("outputs up to {out_features}");
        KernelError::require(is_within, WHAT, field, last, accepted)?;
        blocks.push(Block { first_rank, rank, first_output, outputs, scale, b_start });
        first_rank += rank;
        b_start += cpu::b_len(outputs, rank);
    }
    Ok(blocks)
}

/// Adds to the rows of each segment the product of its adapter: y `[num_tokens, out]`, x
/// `[num_tokens, in]`, both f32. Other rows of y stay as they are.
///
/// # Panics
/// If the widths of `x`, `y` and the matrices disagree, or a row is not below `num_tokens`.
#[must_use]
pub fn add_lora(y: Tensor<2>, x: Tensor<2>, segments: &[LoraSegment<'_>]) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::add_lora(y.into_dispatch(), x.into_dispatch(), segments))
}

/// Asserts that the segments fit x `[num_rows, inputs]` and y `[num_rows, outputs]`.
fn check(segments: &[LoraSegment<'_>], x: [usize; 2], y: [usize; 2]) {
    assert_eq!(x[0], y[0], "add_lora: rows of x and y");
    for segment in segments {
        let LoraWeights { in_features, out_features, .. } = *segment.weights;
        assert_eq!([in_features, out_features], [x[1], y[1]], "add_lora: widths of x and y");
        for row in segment.rows {
            assert!((*row as usize) < x[0], "add_lora: row {row} of {}", x[0]);
        }
    }
}
