//! The sum of each token's results, in the order of its choices.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::plan::Plan;
use crate::cube::{Rows, buffer, cubes, words_buffer};

const UNITS: usize = 256;

/// Writes the sums of `results`, one row a choice, to y and returns it. Results that were scaled
/// already all weigh 1.
pub(super) fn weighted(results: &Rows, plan: &Plan, is_scaled: bool, y: CubeTensor) -> CubeTensor {
    let vectors = results.vectors();
    let elements = plan.rows() / plan.top_k() * vectors;
    // SAFETY: a unit beyond the elements of y does nothing, and the plan names rows of the results.
    unsafe {
        sum_kernel::launch_unchecked(
            results.client(),
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            results.lanes,
            results.arg(),
            words_buffer(plan.tokens()),
            words_buffer(plan.choices()),
            buffer(&y),
            elements,
            vectors,
            plan.rows(),
            plan.top_k(),
            is_scaled,
        );
    }
    y
}

#[cube(launch_unchecked)]
fn sum_kernel<N: Size>(
    results: &[Vector<f32, N>],
    plan: &[u32],
    choices: &[u32],
    y: &mut [Vector<f32, N>],
    elements: usize,
    vectors: usize,
    rows: usize,
    top_k: usize,
    #[comptime] is_scaled: bool,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let (token, i) = (element / vectors, element % vectors);
    let mut sum = Vector::<f32, N>::new(0.0f32);
    for place in 0..top_k {
        let choice = token * top_k + place;
        let result = results[plan[2 * rows + choice] as usize * vectors + i];
        let mut weight = 1.0f32.runtime();
        if comptime!(!is_scaled) {
            weight = f32::reinterpret(choices[2 * choice + 1]);
        }
        sum = fma(Vector::new(weight), result, sum);
    }
    y[element] = sum;
}
