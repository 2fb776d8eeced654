//! Matrices of neighbouring 16-bit numbers, as cubek's routines read and write them.

use std::ops::Range;

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};

use super::HalfFormat;
use crate::cube::{FourHalves, Rows, Vec4, WordFormat, Words, cubes, halves, widen, words_buffer};
use crate::linear::cube::pack::factor_at;
use crate::linear::cube::{CubeWeight, PANEL};

const UNITS: usize = 256;

/// Matrices of one shape, `[count, rows, cols]`.
#[derive(Clone)]
pub(super) struct Matrices {
    handle: Handle,
    shape: [usize; 3],
    /// Elements from one index to the next, for each dimension.
    strides: [usize; 3],
}

impl Matrices {
    /// Returns a matrix of 16-bit numbers, not yet written.
    fn empty(client: &Client, rows: usize, cols: usize, stride: usize) -> Self {
        let handle = client.empty(rows * stride * size_of::<u16>());
        Self { handle, shape: [1, rows, cols], strides: [rows * stride, stride, 1] }
    }

    /// Returns the first `cols` columns of the first `rows` rows of a larger matrix in `handle`.
    #[cfg(test)]
    pub(super) fn part(handle: Handle, rows: usize, cols: usize, stride: usize) -> Self {
        Self { handle, shape: [1, rows, cols], strides: [rows * stride, stride, 1] }
    }

    pub(super) fn binding(self) -> TensorBinding {
        let (shape, strides) = (Shape::new(self.shape), Strides::new(&self.strides));
        // SAFETY: the buffer was made for this shape and these strides.
        unsafe { TensorBinding::from_raw_parts(self.handle, strides, shape) }
    }
}

/// Returns the results of a product, `[rows, outputs]`.
pub(super) fn of_results(y: &CubeTensor) -> Matrices {
    let [rows, outputs] = y.meta.shape().dims::<2>();
    let (shape, strides) = ([1, rows, outputs], [rows * outputs, outputs, 1]);
    Matrices { handle: y.handle.clone(), shape, strides }
}

/// Returns the results as one matrix a panel. The number of columns is a multiple of [`PANEL`].
pub(super) fn of_panels_of_results(y: &CubeTensor) -> Matrices {
    let [rows, outputs] = y.meta.shape().dims::<2>();
    let (shape, strides) = ([outputs / PANEL, rows, PANEL], [PANEL, outputs, 1]);
    Matrices { handle: y.handle.clone(), shape, strides }
}

/// Returns the panels of a weight of 16 bits as they lie, `[panels, inputs, PANEL]`.
pub(super) fn of_panels(weight: &CubeWeight) -> Matrices {
    let shape = [weight.panels(), weight.inputs, PANEL];
    let strides = [weight.inputs * PANEL, PANEL, 1];
    Matrices { handle: weight.words.clone(), shape, strides }
}

/// Returns the rows, rounded.
pub(super) fn of_rows(x: &Rows, half: HalfFormat) -> Matrices {
    let handle = rounded(x, 0..x.rows, half.words());
    Matrices { handle, shape: [1, x.rows, x.cols], strides: [x.rows * x.cols, x.cols, 1] }
}

/// Returns some rows, rounded to a format of 16 bits, one behind the other. Their width is a
/// multiple of four.
pub(crate) fn rounded(x: &Rows, rows: Range<usize>, format: WordFormat) -> Handle {
    assert!(
        rows.end <= x.rows && x.lanes == 4,
        "rounded: rows {rows:?} of {} x {}",
        x.rows,
        x.cols
    );
    let handle = x.client().empty(rows.len() * x.cols * size_of::<u16>());
    let elements = rows.len() * x.vectors();
    // SAFETY: a unit beyond the elements does nothing; rows and strides are those of the buffers.
    unsafe {
        of_rows_kernel::launch_unchecked(
            x.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(&handle),
            elements,
            rows.start,
            x.vectors(),
            x.stride(),
            format,
        );
    }
    handle
}

#[cube(launch_unchecked)]
fn of_rows_kernel(
    x: &[Vec4],
    y: &mut [FourHalves],
    elements: usize,
    first: usize,
    vectors: usize,
    stride: usize,
    #[comptime] format: WordFormat,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let row = first + element / vectors;
    y[element] = halves(x[row * stride + element % vectors], format);
}

/// Returns the bytes of the matrix that [`of_weight`] makes.
pub(super) fn weight_bytes(weight: &CubeWeight) -> usize {
    weight.inputs * weight.panels() * PANEL * size_of::<u16>()
}

/// Returns the weight, `[inputs, outputs]`, with integers as the numbers that they stand for.
pub(super) fn of_weight(client: &Client, weight: &CubeWeight, half: HalfFormat) -> Matrices {
    let stride = weight.panels() * PANEL;
    let halves = Matrices::empty(client, weight.inputs, weight.outputs, stride);
    let chunks = weight.panels() * weight.inputs * (PANEL / weight.format.per_chunk());
    // SAFETY: a unit beyond the chunks does nothing; panels and inputs are those of the buffers.
    unsafe {
        of_weight_kernel::launch_unchecked(
            client,
            cubes(chunks.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            words_buffer(&weight.words),
            weight.factors().into(),
            words_buffer(&halves.handle),
            chunks,
            weight.inputs,
            weight.group_size(),
            stride,
            weight.format,
            half.words(),
        );
    }
    halves
}

#[cube(launch_unchecked)]
fn of_weight_kernel(
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    y: &mut [FourHalves],
    chunks: usize,
    inputs: usize,
    group_size: usize,
    stride: usize,
    #[comptime] format: WordFormat,
    #[comptime] to: WordFormat,
) {
    let at = ABSOLUTE_POS;
    if at >= chunks {
        terminate!();
    }
    let (of_panel, parts) = comptime!((PANEL / format.per_chunk(), format.per_word()));
    let (panel, chunk) = (at / of_panel / inputs, at % of_panel);
    let input = at / of_panel % inputs;
    let words = weight[at];
    let first = (input * stride + panel * PANEL) / 4 + chunk * parts;
    if comptime!(format.is_half()) {
        let (even, odd) = (widen(words, 0usize, format), widen(words, 1usize, format));
        #[unroll]
        for i in 0..2usize {
            let mut numbers = Vec4::new(0.0f32);
            #[unroll]
            for j in 0..2usize {
                numbers.insert(2 * j, even.extract(2 * i + j));
                numbers.insert(2 * j + 1, odd.extract(2 * i + j));
            }
            y[first + i] = halves(numbers, to);
        }
    } else {
        #[unroll]
        for h in 0..parts {
            let mut numbers = widen(words, h, format);
            if comptime!(format.is_coded()) {
                let of_group = factor_at(panel, input / group_size, inputs, group_size);
                let scale = of_group + chunk * parts + h;
                let offset = scale + comptime!(PANEL / 4);
                numbers = fma(numbers, factors.unwrap()[scale], factors.unwrap()[offset]);
            }
            y[first + h] = halves(numbers, to);
        }
    }
}
