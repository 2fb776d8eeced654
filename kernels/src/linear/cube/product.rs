//! The numbers and rows that the kernels of products share.

use cubecl::prelude::*;

use super::{CubeWeight, block_len};
use crate::cube::{Rows, WordFormat};

/// The numbers that all cubes of a launch share.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ProductLayout {
    /// Number of inputs that share a scale.
    pub(super) group_size: usize,
    /// Vectors from one row of x to the next.
    pub(super) x_stride: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Inputs of a block.
    pub(super) block: usize,
    #[cube(comptime)]
    pub(super) format: WordFormat,
    /// Inputs of a vector of x.
    #[cube(comptime)]
    pub(super) lanes: usize,
}

/// Returns the numbers of the product of `x` and `weight`, or of each matrix in `weight`.
pub(super) fn layout(x: &Rows, weight: &CubeWeight) -> ProductLayoutLaunch {
    ProductLayoutLaunch::new(
        weight.group_size(),
        x.stride(),
        weight.inputs,
        weight.outputs,
        block_len(weight.inputs),
        weight.format,
        x.lanes,
    )
}

/// Neighbouring rows of a result, and the matrix that they are multiplied with.
#[derive(CubeType)]
pub(super) struct TileRows {
    pub(super) first: usize,
    pub(super) count: usize,
    /// The index of the matrix in its stack.
    pub(super) matrix: usize,
}

/// Returns the row of x that a row of the result comes from: its source, or the same row where
/// there are no sources.
#[cube]
pub(super) fn source_of(sources: ComptimeOption<&[u32]>, row: usize) -> usize {
    let source: ComptimeOption<usize> = sources.map(|sources| sources[row] as usize);
    source.unwrap_or_else(|| row)
}
