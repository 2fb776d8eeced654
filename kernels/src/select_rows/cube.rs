//! A gather of rows on a GPU, one unit a vector.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{Rows, buffer, cubes, upload, words_buffer};

const UNITS: usize = 256;

/// Returns rows `rows` of `x`.
pub(crate) fn select_rows(x: CubeTensor, rows: &[u32]) -> CubeTensor {
    let x = Rows::new(x);
    for row in rows {
        assert!((*row as usize) < x.rows, "select_rows: row {row} of {}", x.rows);
    }
    let y = x.sibling(rows.len(), x.cols);
    let vectors = x.vectors();
    let indices = upload(x.client(), rows);
    // SAFETY: a unit beyond the elements does nothing, and each index is that of a row.
    unsafe {
        select_rows_kernel::launch_unchecked(
            x.client(),
            cubes((rows.len() * vectors).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.lanes,
            x.arg(),
            words_buffer(&indices),
            buffer(&y),
            rows.len() * vectors,
            vectors,
            x.stride(),
        );
    }
    y
}

#[cube(launch_unchecked)]
fn select_rows_kernel<N: Size>(
    x: &[Vector<f32, N>],
    rows: &[u32],
    y: &mut [Vector<f32, N>],
    elements: usize,
    vectors: usize,
    stride: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let row = rows[element / vectors] as usize;
    y[element] = x[row * stride + element % vectors];
}
