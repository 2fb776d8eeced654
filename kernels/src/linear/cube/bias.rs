//! The bias of a product, one unit a number.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::WeightVector;
use crate::cube::{buffer, cubes, words_buffer};

const UNITS: usize = 256;

/// Adds `bias`, `[outputs]`, to each row of `y`, `[rows, outputs]`, in place.
pub(super) fn add(y: &CubeTensor, bias: &WeightVector) {
    let [rows, outputs] = y.meta.shape().dims::<2>();
    // SAFETY: a unit beyond the numbers does nothing; the bias is as long as a row.
    unsafe {
        add_kernel::launch_unchecked(
            &y.client,
            cubes((rows * outputs).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            buffer(y),
            words_buffer(bias.cube()),
            rows * outputs,
            outputs,
        );
    }
}

#[cube(launch_unchecked)]
fn add_kernel(y: &mut [f32], bias: &[f32], numbers: usize, outputs: usize) {
    let at = ABSOLUTE_POS;
    if at >= numbers {
        terminate!();
    }
    y[at] += bias[at % outputs];
}
