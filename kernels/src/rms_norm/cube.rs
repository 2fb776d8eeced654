//! The GPU's version, one cube a row. Units sum strided vectors in order, then in a tree. The width
//! alone decides the number of units.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::WeightVector;
use crate::cube::{Rows, buffer, cubes, lanes_sum, sum_of_units, words_buffer};

const UNITS_MAX: usize = 256;

/// Normalises each row of `x`. Returns the result and x.
pub(crate) fn rms_norm(x: CubeTensor, weight: &WeightVector, eps: f32) -> (CubeTensor, CubeTensor) {
    (normed(x.clone(), weight, eps), x)
}

/// Normalises each row of `x`.
pub(crate) fn normed(x: CubeTensor, weight: &WeightVector, eps: f32) -> CubeTensor {
    let x = Rows::new(x);
    let y = x.sibling(x.rows, x.cols);
    let units = check(&x, weight);
    // SAFETY: a cube beyond the rows does nothing, and a row's vectors lie within it.
    unsafe {
        rms_norm_kernel::launch_unchecked(
            x.client(),
            cubes(x.rows),
            CubeDim::new_1d(units as u32),
            x.lanes,
            x.arg(),
            words_buffer(weight.cube()),
            buffer(&y),
            x.rows,
            x.vectors(),
            x.stride(),
            eps,
            units,
        );
    }
    y
}

/// Adds, then normalises. Returns the result and the sums.
pub(crate) fn add_rms_norm(
    x: CubeTensor,
    residual: CubeTensor,
    weight: &WeightVector,
    eps: f32,
) -> (CubeTensor, CubeTensor) {
    let (x, residual) = (Rows::new(x), Rows::new(residual));
    let shapes = [[x.rows, x.cols], [residual.rows, residual.cols]];
    assert_eq!(shapes[0], shapes[1], "add_rms_norm: shapes of x and residual");
    let (y, sum) = (x.sibling(x.rows, x.cols), x.sibling(x.rows, x.cols));
    let units = check(&x, weight);
    // SAFETY: as in `normed`.
    unsafe {
        add_rms_norm_kernel::launch_unchecked(
            x.client(),
            cubes(x.rows),
            CubeDim::new_1d(units as u32),
            x.lanes,
            x.arg(),
            residual.arg(),
            words_buffer(weight.cube()),
            buffer(&y),
            buffer(&sum),
            x.rows,
            x.vectors(),
            x.stride(),
            residual.stride(),
            eps,
            units,
        );
    }
    (y, sum)
}

/// Checks the width of x and returns the units of a cube.
fn check(x: &Rows, weight: &WeightVector) -> usize {
    let features = weight.len();
    assert_eq!(x.cols, features, "rms_norm: width of x [{}, {}]", x.rows, x.cols);
    x.vectors().next_power_of_two().clamp(1, UNITS_MAX)
}

#[cube(launch_unchecked)]
fn rms_norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    rows: usize,
    vectors: usize,
    stride: usize,
    eps: f32,
    #[comptime] units: usize,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut squares = Vector::<f32, N>::new(0.0f32);
    let mut i = UNIT_POS as usize;
    while i < vectors {
        let value = x[row * stride + i];
        squares = fma(value, value, squares);
        i += units;
    }
    let scale = row_scale::<N>(squares, vectors, eps, units);
    let mut i = UNIT_POS as usize;
    while i < vectors {
        y[row * vectors + i] = x[row * stride + i] * scale * weight[i];
        i += units;
    }
}

#[cube(launch_unchecked)]
fn add_rms_norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    residual: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    sum: &mut [Vector<f32, N>],
    rows: usize,
    vectors: usize,
    x_stride: usize,
    residual_stride: usize,
    eps: f32,
    #[comptime] units: usize,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut squares = Vector::<f32, N>::new(0.0f32);
    let mut i = UNIT_POS as usize;
    while i < vectors {
        let value = x[row * x_stride + i] + residual[row * residual_stride + i];
        sum[row * vectors + i] = value;
        squares = fma(value, value, squares);
        i += units;
    }
    let scale = row_scale::<N>(squares, vectors, eps, units);
    let mut i = UNIT_POS as usize;
    while i < vectors {
        // Each unit reads only elements that it wrote itself.
        y[row * vectors + i] = sum[row * vectors + i] * scale * weight[i];
        i += units;
    }
}

/// Returns `1 / sqrt(mean + eps)` of the squares that all units summed, in every lane.
#[cube]
fn row_scale<N: Size>(
    squares: Vector<f32, N>,
    vectors: usize,
    eps: f32,
    #[comptime] units: usize,
) -> Vector<f32, N> {
    let sum = sum_of_units(lanes_sum(squares), units);
    let mean = sum / f32::cast_from(vectors * N::value());
    Vector::new(1.0f32 / (mean + eps).sqrt())
}
