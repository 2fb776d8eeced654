//! The gated activation on a GPU, one unit a vector.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{Rows, buffer, cubes};

const UNITS: usize = 256;

/// Computes `silu(gate) * up`.
pub(crate) fn swiglu(gate_up: CubeTensor) -> CubeTensor {
    let x = Rows::new(gate_up);
    assert!(x.cols.is_multiple_of(2), "swiglu: width {} must be even", x.cols);
    let inter = x.cols / 2;
    let y = x.sibling(x.rows, inter);
    // Half a row must start on a vector.
    let lanes = if inter.is_multiple_of(x.lanes) { x.lanes } else { 1 };
    let (vectors, stride) = (inter / lanes, x.stride() * x.lanes / lanes);
    // SAFETY: a unit beyond the elements does nothing.
    unsafe {
        swiglu_kernel::launch_unchecked(
            x.client(),
            cubes((x.rows * vectors).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            lanes,
            x.arg(),
            buffer(&y),
            x.rows * vectors,
            vectors,
            stride,
        );
    }
    y
}

#[cube(launch_unchecked)]
fn swiglu_kernel<N: Size>(
    gate_up: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    elements: usize,
    vectors: usize,
    stride: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let at = element / vectors * stride + element % vectors;
    y[element] = gated(gate_up[at], gate_up[at + vectors]);
}

/// Returns `gate · σ(gate) · up`.
#[cube]
pub(crate) fn gated<N: Size>(gate: Vector<f32, N>, up: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(1.0f32);
    gate / (one + (-gate).exp()) * up
}
