//! The inputs of experts, where they are not just the tokens: scaled, or with columns in the order
//! of an expert's matrix.

use cubecl::prelude::*;
use cubecl::server::Handle;

use super::plan::Plan;
use crate::cube::{Rows, buffer, cubes, words_buffer};

const UNITS: usize = 256;

/// Returns the input of each row of the plan. `x` has a row for each token, or for each row of the
/// plan. `order` is `[expert][columns]`.
pub(super) fn gathered(
    x: &Rows,
    plan: &Plan,
    is_by_token: bool,
    order: Option<&Handle>,
    is_scaled: bool,
) -> Rows {
    let y = x.sibling(plan.rows(), x.cols);
    let elements = plan.rows() * x.cols;
    // SAFETY: a unit beyond the elements does nothing. The plan names tokens and choices of this
    // batch, and an order is a permutation of the columns.
    unsafe {
        expert_inputs_kernel::launch_unchecked(
            x.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(plan.tokens()),
            words_buffer(plan.choices()),
            order.map(words_buffer).into(),
            buffer(&y),
            elements,
            plan.rows(),
            x.cols,
            x.stride() * x.lanes,
            is_by_token,
            is_scaled,
        );
    }
    Rows::new(y)
}

#[cube(launch_unchecked)]
fn expert_inputs_kernel(
    x: &[f32],
    plan: &[u32],
    choices: &[u32],
    order: ComptimeOption<&[u32]>,
    y: &mut [f32],
    elements: usize,
    rows: usize,
    cols: usize,
    stride: usize,
    #[comptime] is_by_token: bool,
    #[comptime] is_scaled: bool,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let (row, col) = (element / cols, element % cols);
    let choice = plan[rows + row] as usize;
    let from = if comptime!(is_by_token) { plan[row] as usize } else { row };
    let at = choices[2 * choice] as usize * cols + col;
    let of_order: ComptimeOption<usize> = order.map(|order| order[at] as usize);
    let value = x[from * stride + of_order.unwrap_or_else(|| col)];
    if comptime!(is_scaled) {
        y[element] = f32::reinterpret(choices[2 * choice + 1]) * value;
    } else {
        y[element] = value;
    }
}
