//! The GPUs' version: the product with the gate, and the norm of groups before or after it.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{GatedNorm, GroupNorm};
use crate::activation::cube::{Function, activated, function};
use crate::cube::{Norm, Rows, VectorLaunch, VectorMap, normed, per_vector};

/// Gates and normalises.
pub(crate) fn gated_norm(
    x: CubeTensor,
    gate: CubeTensor,
    column: usize,
    norm: &GatedNorm,
) -> CubeTensor {
    let of_groups = |x: CubeTensor| match &norm.norm {
        Some(norm) => normalised(x, norm),
        None => x,
    };
    match norm.norm_before_gate {
        true => gated(of_groups(x), gate, column, norm),
        false => of_groups(gated(x, gate, column, norm)),
    }
}

/// Normalises each group of each row.
fn normalised(x: CubeTensor, norm: &GroupNorm) -> CubeTensor {
    let GroupNorm { weight, num_groups, eps } = norm;
    let [rows, features] = x.meta.shape().dims::<2>();
    let group = features / num_groups;
    assert_eq!(features, num_groups * group, "gated_norm: groups of {features} features");
    assert!([features, group].contains(&weight.len()), "gated_norm: length of the weight");
    let x = CubeBackend::float_reshape(x, Shape::new([rows * num_groups, group]));
    let norm = Norm { weight: Some(weight), bias: None, eps: *eps, is_centered: false };
    CubeBackend::float_reshape(normed(x, norm), Shape::new([rows, features]))
}

/// Computes `x · f(scale · gate)`.
fn gated(x: CubeTensor, gate: CubeTensor, column: usize, norm: &GatedNorm) -> CubeTensor {
    let (x, gate) = (Rows::new(x), Rows::new(gate));
    assert_eq!(x.rows, gate.rows, "gated_norm: rows of the gate");
    assert!(column + x.cols <= gate.cols, "gated_norm: columns of the gate");
    let (arg, stride) = (gate.arg(), gate.stride() * gate.lanes);
    per_vector(&x, x.cols, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        let function = function(norm.activation);
        // SAFETY: a unit beyond the elements does nothing, and the gate has the columns of x.
        unsafe {
            gate_kernel::launch_unchecked(
                client,
                cubes,
                dim,
                lanes,
                x,
                arg,
                y,
                map,
                stride,
                column,
                norm.gate_scale,
                function,
            );
        }
    })
}

#[cube(launch_unchecked)]
fn gate_kernel<N: Size>(
    x: &[Vector<f32, N>],
    gate: &[f32],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    stride: usize,
    column: usize,
    scale: f32,
    function: Function,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let (row, i) = map.place(element);
    // A gate may begin at any column, so its elements are loaded one by one.
    let first = row * stride + column + i * N::value();
    let mut gates = Vector::<f32, N>::new(0.0f32);
    #[unroll]
    for lane in 0..N::value() {
        gates.insert(lane, gate[first + lane]);
    }
    y[element] = x[map.source(element)] * activated::<N>(gates * Vector::new(scale), &function);
}
