//! Matrices of neighbouring 16-bit numbers, as routines read them.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};

use super::HalfFormat;
use crate::cube::{FourHalves, Rows, Vec4, WordFormat, Words, cubes, halves, widen, words_buffer};
use crate::linear::cube::pack::factor_at;
use crate::linear::cube::{CubeWeight, PANEL};

const UNITS: usize = 256;

/// A matrix of 16-bit numbers, `[rows, cols]`.
#[derive(Clone)]
pub(super) struct Halves {
    handle: Handle,
    rows: usize,
    cols: usize,
    /// Elements from one row to the next.
    stride: usize,
}

impl Halves {
    /// One not yet written.
    fn empty(client: &Client, rows: usize, cols: usize, stride: usize) -> Self {
        let handle = client.empty(rows * stride * size_of::<u16>());
        Self { handle, rows, cols, stride }
    }

    pub(super) fn binding(self) -> TensorBinding {
        let shape = Shape::new([self.rows, self.cols]);
        let strides = Strides::new(&[self.stride, 1]);
        // SAFETY: shape and strides are those that the buffer was made for.
        unsafe { TensorBinding::from_raw_parts(self.handle, strides, shape) }
    }
}

/// The rows, rounded.
pub(super) fn of_rows(x: &Rows, half: HalfFormat) -> Halves {
    let halves = Halves::empty(x.client(), x.rows, x.cols, x.cols);
    let elements = x.rows * x.vectors();
    // SAFETY: a unit beyond the elements leaves; rows and strides are those of the buffers.
    unsafe {
        of_rows_kernel::launch_unchecked(
            x.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(&halves.handle),
            elements,
            x.vectors(),
            x.stride(),
            half.words(),
        );
    }
    halves
}

#[cube(launch_unchecked)]
fn of_rows_kernel(
    x: &[Vec4],
    y: &mut [FourHalves],
    elements: usize,
    vectors: usize,
    stride: usize,
    #[comptime] format: WordFormat,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    y[element] = halves(x[element / vectors * stride + element % vectors], format);
}

/// The weight, `[inputs, outputs]`; its integers as the numbers that they stand for.
pub(super) fn of_weight(client: &Client, weight: &CubeWeight, half: HalfFormat) -> Halves {
    let stride = weight.panels() * PANEL;
    let halves = Halves::empty(client, weight.inputs, weight.outputs, stride);
    let chunks = weight.panels() * weight.inputs * (PANEL / weight.format.per_chunk());
    // SAFETY: a unit beyond the chunks leaves; panels and inputs are those of the buffers.
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
