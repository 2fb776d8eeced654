//! Columns in another order, for a weight whose groups do not hold neighbouring inputs.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::cube::{Rows, buffer, cubes, words_buffer};

const UNITS: usize = 256;

/// Returns column `order[c]` of `x` for each `c`.
pub(super) fn in_order(x: &Rows, order: &Handle) -> CubeTensor {
    let y = x.sibling(x.rows, x.cols);
    let elements = x.rows * x.cols;
    // SAFETY: a unit beyond the elements does nothing, and the order is a permutation of the
    // columns.
    unsafe {
        columns_kernel::launch_unchecked(
            x.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(order),
            buffer(&y),
            elements,
            x.cols,
            x.stride() * x.lanes,
        );
    }
    y
}

#[cube(launch_unchecked)]
fn columns_kernel(
    x: &[f32],
    order: &[u32],
    y: &mut [f32],
    elements: usize,
    cols: usize,
    stride: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    y[element] = x[element / cols * stride + order[element % cols] as usize];
}
