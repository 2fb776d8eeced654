//! The product on a GPU: one unit for each element of `A x`, then one for each element of y.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::{LoraPair, LoraSegment, check};
use crate::cube::{Rows, buffer, cubes, float_tensor, upload, upload_of_caller, words_buffer};

const UNITS: usize = 256;

/// The matrices on a device, in f32.
#[derive(Debug)]
pub(super) struct Uploaded {
    /// `[rank, in]` and `[outputs, rank]` of each pair.
    pairs: Vec<[Handle; 2]>,
}

impl Uploaded {
    pub(super) fn new(pairs: &[LoraPair<'_>], device: &cubecl::Device) -> Self {
        let client = device.client();
        let uploaded = |values: &[f32]| upload(&client, bytemuck::cast_slice(values));
        Self { pairs: pairs.iter().map(|pair| [uploaded(pair.a), uploaded(pair.b)]).collect() }
    }

    pub(super) fn size_bytes(&self) -> usize {
        let bytes = |handle: &Handle| handle.size_in_used() as usize;
        self.pairs.iter().flatten().map(bytes).sum()
    }
}

/// Adds the products to y.
pub(crate) fn add_lora(y: CubeTensor, x: CubeTensor, segments: &[LoraSegment<'_>]) -> CubeTensor {
    let (x, y) = (Rows::new(x), into_own(y));
    let [rows, outputs] = y.meta.shape().dims::<2>();
    check(segments, [x.rows, x.cols], [rows, outputs]);
    for segment in segments.iter().filter(|segment| !segment.rows.is_empty()) {
        let super::Storage::Cube(uploaded) = &segment.weights.storage else {
            unreachable!("add_lora: x is on a GPU, the weights are not");
        };
        let indices = upload_of_caller(x.client(), segment.rows);
        for (block, [a, b]) in segment.weights.blocks.iter().zip(&uploaded.pairs) {
            let count = segment.rows.len();
            let low = float_tensor(x.client(), x.device(), [count, block.rank]);
            let units = |elements: usize| cubes(elements.div_ceil(UNITS));
            let dim = CubeDim::new_1d(UNITS as u32);
            // SAFETY: a unit beyond the elements does nothing, `check` has checked the rows, and
            // the matrices have the lengths that `LoraWeights::pack` has checked.
            unsafe {
                shrink_kernel::launch_unchecked(
                    x.client(),
                    units(count * block.rank),
                    dim,
                    x.arg(),
                    words_buffer(&indices),
                    words_buffer(a),
                    buffer(&low),
                    count * block.rank,
                    block.rank,
                    x.cols,
                    x.stride() * x.lanes,
                    block.scale,
                );
                expand_kernel::launch_unchecked(
                    x.client(),
                    units(count * block.outputs),
                    dim,
                    buffer(&low),
                    words_buffer(&indices),
                    words_buffer(b),
                    buffer(&y),
                    count * block.outputs,
                    block.rank,
                    block.outputs,
                    block.first_output,
                    outputs,
                );
            }
        }
    }
    y
}

/// Replaces rows of y by those of x.
pub(crate) fn set_rows(y: CubeTensor, x: CubeTensor, rows: &[u32]) -> CubeTensor {
    let (x, y) = (Rows::new(x), into_own(y));
    let elements = rows.len() * x.cols;
    let indices = upload_of_caller(x.client(), rows);
    // SAFETY: a unit beyond the elements does nothing, and each index is that of a row.
    unsafe {
        set_rows_kernel::launch_unchecked(
            x.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(&indices),
            buffer(&y),
            elements,
            x.cols,
            x.stride() * x.lanes,
        );
    }
    y
}

/// Returns a dense tensor with the values of `y` that may be written.
fn into_own(y: CubeTensor) -> CubeTensor {
    let y = burn_cubecl::kernel::into_contiguous(y);
    if y.can_mut() { y } else { y.copy() }
}

#[cube(launch_unchecked)]
fn shrink_kernel(
    x: &[f32],
    rows: &[u32],
    a: &[f32],
    low: &mut [f32],
    elements: usize,
    rank: usize,
    inputs: usize,
    stride: usize,
    scale: f32,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let row = rows[element / rank] as usize * stride;
    let first = element % rank * inputs;
    let mut sum = 0.0f32;
    for i in 0..inputs {
        sum += a[first + i] * x[row + i];
    }
    low[element] = sum * scale;
}

#[cube(launch_unchecked)]
fn expand_kernel(
    low: &[f32],
    rows: &[u32],
    b: &[f32],
    y: &mut [f32],
    elements: usize,
    rank: usize,
    outputs: usize,
    first_output: usize,
    width: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let place = element / outputs;
    let output = element % outputs;
    let mut sum = 0.0f32;
    for j in 0..rank {
        sum += low[place * rank + j] * b[output * rank + j];
    }
    y[rows[place] as usize * width + first_output + output] += sum;
}

#[cube(launch_unchecked)]
fn set_rows_kernel(
    x: &[f32],
    rows: &[u32],
    y: &mut [f32],
    elements: usize,
    width: usize,
    stride: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let place = element / width;
    let column = element % width;
    y[rows[place] as usize * width + column] = x[place * stride + column];
}
