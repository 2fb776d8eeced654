//! Launches with a unit for each vector of a result, whose rows come from rows of x.

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::{Rows, buffer, cubes};

const UNITS: usize = 256;

/// The vectors of a result, and their places in x.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct VectorMap {
    /// The number of vectors of the result. A unit beyond them has no work.
    pub(crate) elements: usize,
    /// Vectors in a row of the result.
    pub(crate) vectors: usize,
    /// Vectors from one row of x to the next.
    stride: usize,
}

#[cube]
impl VectorMap {
    /// Returns the row of a vector of the result, and the vector's index in that row.
    pub(crate) fn place(&self, element: usize) -> (usize, usize) {
        (element / self.vectors, element % self.vectors)
    }

    /// Returns the place in x of a vector of the result.
    pub(crate) fn source(&self, element: usize) -> usize {
        let (row, i) = self.place(element);
        row * self.stride + i
    }
}

/// The arguments that all these launches have.
pub(crate) struct VectorLaunch<'a> {
    pub(crate) client: &'a Client,
    pub(crate) cubes: CubeCount,
    pub(crate) dim: CubeDim,
    /// Elements of a vector.
    pub(crate) lanes: usize,
    pub(crate) x: BufferArg,
    pub(crate) y: BufferArg,
    pub(crate) map: VectorMapLaunch,
}

/// Returns a result `[x.rows, cols]`, which `launch` computes. `cols` is the width of x, or a part
/// of it.
pub(crate) fn per_vector(
    x: &Rows,
    cols: usize,
    launch: impl FnOnce(VectorLaunch<'_>),
) -> CubeTensor {
    let y = x.sibling(x.rows, cols);
    // A part of a row must consist of whole vectors.
    let lanes = if cols.is_multiple_of(x.lanes) { x.lanes } else { 1 };
    let (vectors, stride) = (cols / lanes, x.stride() * x.lanes / lanes);
    let elements = x.rows * vectors;
    launch(VectorLaunch {
        client: x.client(),
        cubes: cubes(elements.div_ceil(UNITS)),
        dim: CubeDim::new_1d(UNITS as u32),
        lanes,
        x: x.arg(),
        y: buffer(&y),
        map: VectorMapLaunch::new(elements, vectors, stride),
    });
    y
}
