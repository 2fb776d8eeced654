//! Norms of rows, one cube a row. Units sum strided vectors in order, then in a tree. The width
//! alone decides the number of units.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Rows, buffer, cubes, lanes_sum, sum_of_units, words_buffer};
use crate::WeightVector;

const UNITS_MAX: usize = 256;

/// A norm. A missing weight is 1, and a missing bias is 0.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// As long as a row, or as several rows, which then take turns.
    pub(crate) weight: Option<&'a WeightVector>,
    /// As long as a row.
    pub(crate) bias: Option<&'a WeightVector>,
    pub(crate) eps: f32,
    /// Whether the mean is subtracted.
    pub(crate) is_centered: bool,
}

/// The numbers that all cubes of a launch share.
#[derive(CubeType, CubeLaunch)]
struct NormLayout {
    rows: usize,
    /// Vectors in a row, and from one row of x to the next.
    vectors: usize,
    x_stride: usize,
    /// Rows that the weight has.
    weight_rows: usize,
    eps: f32,
    #[cube(comptime)]
    units: usize,
    #[cube(comptime)]
    is_centered: bool,
}

/// Normalises each row of `x`.
pub(crate) fn normed(x: CubeTensor, norm: Norm<'_>) -> CubeTensor {
    let x = Rows::new(x);
    let y = x.sibling(x.rows, x.cols);
    let units = units(&x);
    // SAFETY: a cube beyond the rows does nothing, and a row's vectors lie within it. Callers
    // checked that the weight is a whole number of rows, and the bias one.
    unsafe {
        norm_kernel::launch_unchecked(
            x.client(),
            cubes(x.rows),
            CubeDim::new_1d(units as u32),
            x.lanes,
            x.arg(),
            norm.weight.map(words).into(),
            norm.bias.map(words).into(),
            buffer(&y),
            norm.layout(&x, units),
        );
    }
    y
}

/// Adds, then normalises. Returns the result and the sums. `name` is the operation's.
pub(crate) fn add_normed(
    x: CubeTensor,
    residual: CubeTensor,
    norm: Norm<'_>,
    name: &str,
) -> (CubeTensor, CubeTensor) {
    let (x, residual) = (Rows::new(x), Rows::new(residual));
    let shapes = [[x.rows, x.cols], [residual.rows, residual.cols]];
    assert_eq!(shapes[0], shapes[1], "{name}: shapes of x and residual");
    let (y, sum) = (x.sibling(x.rows, x.cols), x.sibling(x.rows, x.cols));
    let units = units(&x);
    // SAFETY: as in `normed`.
    unsafe {
        add_norm_kernel::launch_unchecked(
            x.client(),
            cubes(x.rows),
            CubeDim::new_1d(units as u32),
            x.lanes,
            x.arg(),
            residual.arg(),
            norm.weight.map(words).into(),
            norm.bias.map(words).into(),
            buffer(&y),
            buffer(&sum),
            residual.stride(),
            norm.layout(&x, units),
        );
    }
    (y, sum)
}

impl Norm<'_> {
    fn layout(&self, x: &Rows, units: usize) -> NormLayoutLaunch {
        let weight_rows = self.weight.map_or(1, |weight| weight.len() / x.cols.max(1)).max(1);
        let (vectors, stride) = (x.vectors(), x.stride());
        let Self { eps, is_centered, .. } = *self;
        NormLayoutLaunch::new(x.rows, vectors, stride, weight_rows, eps, units, is_centered)
    }
}

/// Returns the units of a cube.
fn units(x: &Rows) -> usize {
    x.vectors().next_power_of_two().clamp(1, UNITS_MAX)
}

fn words(vector: &WeightVector) -> BufferArg {
    words_buffer(vector.cube())
}

#[cube(launch_unchecked)]
fn norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: ComptimeOption<&[Vector<f32, N>]>,
    bias: ComptimeOption<&[Vector<f32, N>]>,
    y: &mut [Vector<f32, N>],
    layout: NormLayout,
) {
    let row = CUBE_POS;
    if row >= layout.rows {
        terminate!();
    }
    let from = row * layout.x_stride;
    let mut total = Vector::<f32, N>::new(0.0f32);
    let mut i = UNIT_POS as usize;
    while i < layout.vectors {
        total = counted::<N>(x[from + i], total, comptime!(layout.is_centered));
        i += comptime!(layout.units);
    }
    normalise::<N>(x, from, total, weight, bias, y, row, &layout);
}

#[cube(launch_unchecked)]
fn add_norm_kernel<N: Size>(
    x: &[Vector<f32, N>],
    residual: &[Vector<f32, N>],
    weight: ComptimeOption<&[Vector<f32, N>]>,
    bias: ComptimeOption<&[Vector<f32, N>]>,
    y: &mut [Vector<f32, N>],
    sum: &mut [Vector<f32, N>],
    residual_stride: usize,
    layout: NormLayout,
) {
    let row = CUBE_POS;
    if row >= layout.rows {
        terminate!();
    }
    let from = row * layout.vectors;
    let mut total = Vector::<f32, N>::new(0.0f32);
    let mut i = UNIT_POS as usize;
    while i < layout.vectors {
        let value = x[row * layout.x_stride + i] + residual[row * residual_stride + i];
        sum[from + i] = value;
        total = counted::<N>(value, total, comptime!(layout.is_centered));
        i += comptime!(layout.units);
    }
    // Each unit reads only elements that it wrote itself.
    normalise::<N>(&*sum, from, total, weight, bias, y, row, &layout);
}

/// Adds a value, or its square where no mean is subtracted.
#[cube]
fn counted<N: Size>(
    value: Vector<f32, N>,
    total: Vector<f32, N>,
    #[comptime] is_centered: bool,
) -> Vector<f32, N> {
    if comptime!(is_centered) { total + value } else { fma(value, value, total) }
}

/// Writes a row of the result from the row of `values` that begins at `from`.
#[cube]
fn normalise<N: Size>(
    values: &[Vector<f32, N>],
    from: usize,
    total: Vector<f32, N>,
    weight: ComptimeOption<&[Vector<f32, N>]>,
    bias: ComptimeOption<&[Vector<f32, N>]>,
    y: &mut [Vector<f32, N>],
    row: usize,
    layout: &NormLayout,
) {
    let (vectors, units) = (layout.vectors, comptime!(layout.units));
    let mut mean = Vector::<f32, N>::new(0.0f32);
    let mut squares = total;
    if comptime!(layout.is_centered) {
        mean = Vector::new(row_mean::<N>(total, vectors, units));
        squares = Vector::new(0.0f32);
        let mut i = UNIT_POS as usize;
        while i < vectors {
            let deviation = values[from + i] - mean;
            squares = fma(deviation, deviation, squares);
            i += units;
        }
    }
    let scale = 1.0f32 / (row_mean::<N>(squares, vectors, units) + layout.eps).sqrt();
    let scale = Vector::<f32, N>::new(scale);
    let first_weight = row % layout.weight_rows * vectors;
    let mut i = UNIT_POS as usize;
    while i < vectors {
        let mut standard = values[from + i];
        if comptime!(layout.is_centered) {
            standard -= mean;
        }
        let at = first_weight + i;
        let weight: ComptimeOption<Vector<f32, N>> = weight.map(|weight| weight[at]);
        let bias: ComptimeOption<Vector<f32, N>> = bias.map(|bias| bias[i]);
        let weight = weight.unwrap_or_else(|| Vector::new(1.0f32));
        let bias = bias.unwrap_or_else(|| Vector::new(0.0f32));
        y[row * vectors + i] = fma(standard * scale, weight, bias);
        i += units;
    }
}

/// Returns the mean of the elements that all units summed.
#[cube]
fn row_mean<N: Size>(total: Vector<f32, N>, vectors: usize, #[comptime] units: usize) -> f32 {
    sum_of_units(lanes_sum(total), units) / f32::cast_from(vectors * N::value())
}
