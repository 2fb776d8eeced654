//! The maps on a GPU, one unit a vector.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ElementMap;
use crate::cube::{
    Rows, VectorLaunch, VectorMap, clamped, per_vector, tanh, upload_of_caller, words_buffer,
};

/// The kind of an [`ElementMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MapKind {
    Scale,
    SoftCap,
    Clamp,
}

/// Maps each element.
pub(crate) fn map_elements(x: CubeTensor, map: ElementMap) -> CubeTensor {
    let (kind, parameter) = match map {
        ElementMap::Scale(factor) => (MapKind::Scale, factor),
        ElementMap::SoftCap(cap) => (MapKind::SoftCap, cap),
        ElementMap::Clamp(limit) => (MapKind::Clamp, limit),
    };
    let x = Rows::new(x);
    per_vector(&x, x.cols, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        // SAFETY: a unit beyond the elements does nothing.
        unsafe {
            map_kernel::launch_unchecked(client, cubes, dim, lanes, x, y, map, parameter, kind);
        }
    })
}

/// Computes `x + factor · y`.
pub(crate) fn add_scaled(x: CubeTensor, y: CubeTensor, factor: f32) -> CubeTensor {
    let (x, other) = (Rows::new(x), Rows::new(y));
    assert_eq!([x.rows, x.cols], [other.rows, other.cols], "add_scaled: shapes of x and y");
    let (arg, stride) = (other.arg(), other.stride());
    per_vector(&x, x.cols, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        // SAFETY: a unit beyond the elements does nothing, and both operands have the same shape.
        unsafe {
            add_scaled_kernel::launch_unchecked(
                client, cubes, dim, lanes, x, arg, y, map, stride, factor,
            );
        }
    })
}

/// Multiplies each row by its factor.
pub(crate) fn scale_rows(x: CubeTensor, factors: &[f32]) -> CubeTensor {
    let x = Rows::new(x);
    assert_eq!(x.rows, factors.len(), "scale_rows: one factor a row");
    let factors = upload_of_caller(x.client(), bytemuck::cast_slice(factors));
    by_row(&x, words_buffer(&factors), 1, false)
}

/// Multiplies each row by the logistic function of its gate.
pub(crate) fn gate_rows(x: CubeTensor, gate: CubeTensor) -> CubeTensor {
    let (x, gate) = (Rows::new(x), Rows::new(gate));
    assert_eq!([x.rows, 1], [gate.rows, gate.cols], "gate_rows: shape of the gate");
    by_row(&x, gate.arg(), gate.stride(), true)
}

/// Multiplies each row by its factor, or by the logistic function of its factor. Factors are
/// `stride` numbers apart.
fn by_row(x: &Rows, factors: BufferArg, stride: usize, is_gate: bool) -> CubeTensor {
    per_vector(x, x.cols, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        // SAFETY: a unit beyond the elements does nothing, and each row has a factor.
        unsafe {
            by_row_kernel::launch_unchecked(
                client, cubes, dim, lanes, x, factors, y, map, stride, is_gate,
            );
        }
    })
}

#[cube(launch_unchecked)]
fn by_row_kernel<N: Size>(
    x: &[Vector<f32, N>],
    factors: &[f32],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    stride: usize,
    #[comptime] is_gate: bool,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let (row, _) = map.place(element);
    let mut factor = factors[row * stride];
    if comptime!(is_gate) {
        factor = 1.0f32 / (1.0f32 + (-factor).exp());
    }
    y[element] = x[map.source(element)] * Vector::new(factor);
}

#[cube(launch_unchecked)]
fn map_kernel<N: Size>(
    x: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    parameter: f32,
    #[comptime] kind: MapKind,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let parameter = Vector::<f32, N>::new(parameter);
    y[element] = mapped::<N>(x[map.source(element)], parameter, kind);
}

#[cube]
fn mapped<N: Size>(
    x: Vector<f32, N>,
    parameter: Vector<f32, N>,
    #[comptime] kind: MapKind,
) -> Vector<f32, N> {
    match comptime!(kind) {
        MapKind::Scale => x * parameter,
        MapKind::SoftCap => parameter * tanh::<N>(x / parameter),
        MapKind::Clamp => clamped::<N>(x, parameter),
    }
}

#[cube(launch_unchecked)]
fn add_scaled_kernel<N: Size>(
    x: &[Vector<f32, N>],
    other: &[Vector<f32, N>],
    sum: &mut [Vector<f32, N>],
    map: VectorMap,
    stride: usize,
    factor: f32,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let (row, i) = map.place(element);
    let factor = Vector::<f32, N>::new(factor);
    sum[element] = fma(other[row * stride + i], factor, x[map.source(element)]);
}
