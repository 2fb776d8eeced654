//! [`ExpertActivation::ClampedSwiGlu`](super::ExpertActivation::ClampedSwiGlu) and
//! [`ExpertActivation::LimitedSwiGlu`](super::ExpertActivation::LimitedSwiGlu), one unit a vector.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{Rows, VectorLaunch, VectorMap, clamped, per_vector};

/// Computes the clamped gate of rows `[gate, up]`.
pub(super) fn clamped_swiglu(gate_up: CubeTensor, alpha: f32, limit: f32) -> CubeTensor {
    let x = Rows::new(gate_up);
    per_vector(&x, x.cols / 2, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        // SAFETY: a unit beyond the elements does nothing, and a row of x has two vectors for each.
        unsafe {
            clamped_kernel::launch_unchecked(client, cubes, dim, lanes, x, y, map, alpha, limit);
        }
    })
}

#[cube(launch_unchecked)]
fn clamped_kernel<N: Size>(
    gate_up: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    alpha: f32,
    limit: f32,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let at = map.source(element);
    let most = Vector::<f32, N>::new(limit);
    let (gate, up) = (gate_up[at], clamped::<N>(gate_up[at + map.vectors], most));
    let gate = select_many(gate.greater_than(&most), most, gate);
    let one = Vector::<f32, N>::new(1.0f32);
    let gated = gate / (one + (-(gate * Vector::new(alpha))).exp());
    y[element] = gated * (up + one);
}

/// Computes the limited gate of rows `[gate, up]`.
pub(super) fn limited_swiglu(gate_up: CubeTensor, limit: f32) -> CubeTensor {
    let x = Rows::new(gate_up);
    per_vector(&x, x.cols / 2, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        // SAFETY: a unit beyond the elements does nothing, and a row of x has two vectors for each.
        unsafe {
            limited_kernel::launch_unchecked(client, cubes, dim, lanes, x, y, map, limit);
        }
    })
}

#[cube(launch_unchecked)]
fn limited_kernel<N: Size>(
    gate_up: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    limit: f32,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let at = map.source(element);
    let most = Vector::<f32, N>::new(limit);
    let (gate, up) = (gate_up[at], clamped::<N>(gate_up[at + map.vectors], most));
    let one = Vector::<f32, N>::new(1.0f32);
    let gated = gate / (one + (-gate).exp());
    let gated = select_many(gated.greater_than(&most), most, gated);
    y[element] = gated * up;
}
