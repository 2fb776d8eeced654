//! The activations on a GPU, one unit a vector.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Activation;
use super::functions::{
    GELU_MAX, GELU_TANH_CUBE, GELU_TANH_SLOPE, LAPLACE_DEVIATION, LAPLACE_MEAN, LEAK, MISH_MAX,
    QUICK_GELU_SLOPE, TAIL, TAIL_SLOPE,
};
use crate::cube::{Rows, VectorLaunch, VectorMap, expm1, per_vector, positive, tanh};

/// The kind of an [`Activation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Silu,
    Gelu,
    GeluTanh,
    QuickGelu,
    Relu,
    ReluSquared,
    Sigmoid,
    Identity,
    GeluClipped,
    LeakyRelu,
    Relu6,
    HardSwish,
    Mish,
    Tanh,
    Softplus,
    Laplace,
    XIelu,
}

/// An [`Activation`] as kernels take it. The numbers are those of [`Activation::XIelu`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Function {
    alpha_p: f32,
    alpha_n: f32,
    beta: f32,
    eps: f32,
    #[cube(comptime)]
    kind: Kind,
}

/// Returns the argument of a launch.
pub(crate) fn function(activation: Activation) -> FunctionLaunch {
    let of = |kind| FunctionLaunch::new(0.0, 0.0, 0.0, 0.0, kind);
    match activation {
        Activation::Silu => of(Kind::Silu),
        Activation::Gelu => of(Kind::Gelu),
        Activation::GeluTanh => of(Kind::GeluTanh),
        Activation::QuickGelu => of(Kind::QuickGelu),
        Activation::Relu => of(Kind::Relu),
        Activation::ReluSquared => of(Kind::ReluSquared),
        Activation::Sigmoid => of(Kind::Sigmoid),
        Activation::Identity => of(Kind::Identity),
        Activation::GeluClipped => of(Kind::GeluClipped),
        Activation::LeakyRelu => of(Kind::LeakyRelu),
        Activation::Relu6 => of(Kind::Relu6),
        Activation::HardSwish => of(Kind::HardSwish),
        Activation::Mish => of(Kind::Mish),
        Activation::Tanh => of(Kind::Tanh),
        Activation::Softplus => of(Kind::Softplus),
        Activation::Laplace => of(Kind::Laplace),
        Activation::XIelu { alpha_p, alpha_n, beta, eps } => {
            FunctionLaunch::new(alpha_p, alpha_n, beta, eps, Kind::XIelu)
        }
    }
}

/// Computes `f(x)`.
pub(crate) fn activate(x: CubeTensor, activation: Activation) -> CubeTensor {
    let x = Rows::new(x);
    per_vector(&x, x.cols, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        let function = function(activation);
        // SAFETY: a unit beyond the elements does nothing.
        unsafe { activate_kernel::launch_unchecked(client, cubes, dim, lanes, x, y, map, function) }
    })
}

/// Computes `f(gate) * up`.
pub(crate) fn gated(gate_up: CubeTensor, activation: Activation) -> CubeTensor {
    let x = Rows::new(gate_up);
    assert!(x.cols.is_multiple_of(2), "gated: width {} must be even", x.cols);
    per_vector(&x, x.cols / 2, |launch| {
        let VectorLaunch { client, cubes, dim, lanes, x, y, map } = launch;
        let function = function(activation);
        // SAFETY: a unit beyond the elements does nothing, and a row of x has two vectors for each.
        unsafe { gated_kernel::launch_unchecked(client, cubes, dim, lanes, x, y, map, function) }
    })
}

#[cube(launch_unchecked)]
fn activate_kernel<N: Size>(
    x: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    function: Function,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    y[element] = activated::<N>(x[map.source(element)], &function);
}

#[cube(launch_unchecked)]
fn gated_kernel<N: Size>(
    gate_up: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    map: VectorMap,
    function: Function,
) {
    let element = ABSOLUTE_POS;
    if element >= map.elements {
        terminate!();
    }
    let at = map.source(element);
    y[element] = activated::<N>(gate_up[at], &function) * gate_up[at + map.vectors];
}

/// Returns `gate · σ(gate) · up`.
#[cube]
pub(crate) fn silu_gated<N: Size>(gate: Vector<f32, N>, up: Vector<f32, N>) -> Vector<f32, N> {
    sigmoid_of::<N>(gate, gate) * up
}

/// Returns `f(x)`.
#[cube]
pub(crate) fn activated<N: Size>(x: Vector<f32, N>, function: &Function) -> Vector<f32, N> {
    match comptime!(function.kind) {
        Kind::Silu => sigmoid_of::<N>(x, x),
        Kind::Gelu => gelu::<N>(x),
        Kind::GeluTanh => {
            let square = x * Vector::new(comptime!(GELU_TANH_CUBE));
            let u = fma(x * square, x, x);
            sigmoid_of::<N>(x, u * Vector::new(comptime!(GELU_TANH_SLOPE)))
        }
        Kind::QuickGelu => sigmoid_of::<N>(x, x * Vector::new(comptime!(QUICK_GELU_SLOPE))),
        Kind::Relu => positive::<N>(x),
        Kind::ReluSquared => {
            let above = positive::<N>(x);
            above * above
        }
        Kind::Sigmoid => sigmoid_of::<N>(Vector::new(1.0f32), x),
        Kind::Identity => x,
        Kind::GeluClipped => at_most::<N>(gelu::<N>(x), comptime!(GELU_MAX)),
        Kind::LeakyRelu => {
            let zero = Vector::<f32, N>::new(0.0f32);
            select_many(x.less_than(&zero), x * Vector::new(comptime!(LEAK)), x)
        }
        Kind::Relu6 => at_most::<N>(positive::<N>(x), 6.0f32),
        Kind::HardSwish => {
            let share = at_most::<N>(positive::<N>(x + Vector::new(3.0f32)), 6.0f32);
            x * share / Vector::new(6.0f32)
        }
        Kind::Mish => {
            let two = Vector::<f32, N>::new(2.0f32);
            let n = at_most::<N>(x, comptime!(MISH_MAX)).exp();
            let m = n * (n + two);
            x * (m / (m + two))
        }
        Kind::Tanh => tanh::<N>(x),
        Kind::Softplus => softplus::<N>(x),
        Kind::Laplace => laplace::<N>(x),
        Kind::XIelu => xielu::<N>(x, function),
    }
}

/// Returns `x · σ(u)`.
#[cube]
fn sigmoid_of<N: Size>(x: Vector<f32, N>, u: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(1.0f32);
    x / (one + (-u).exp())
}

/// Returns `max(x, 0) − |x| · tail(|x|)`.
#[cube]
fn gelu<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::new(0.0f32);
    let t = select_many(x.less_than(&zero), -x, x);
    fma(-t, tail::<N>(t), positive::<N>(x))
}

/// Returns x, at most `bound`. NaN stays NaN.
#[cube]
fn at_most<N: Size>(x: Vector<f32, N>, #[comptime] bound: f32) -> Vector<f32, N> {
    let bound = Vector::<f32, N>::new(comptime!(bound));
    select_many(x.greater_than(&bound), bound, x)
}

/// See [`Activation::Softplus`]. It is `max(x, 0) + ln(1 + e^−|x|)`, whose logarithm is
/// `2 · atanh(u)` of `u = e / (e + 2)`, at most 1/3, by its series.
#[cube]
fn softplus<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::new(0.0f32);
    let two = Vector::<f32, N>::new(2.0f32);
    let e = select_many(x.less_than(&zero), x, -x).exp();
    let u = e / (e + two);
    let square = u * u;
    let mut series = Vector::<f32, N>::new(comptime!(2.0f32 / 15.0));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 13.0)));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 11.0)));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 9.0)));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 7.0)));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 5.0)));
    series = fma(series, square, Vector::new(comptime!(2.0f32 / 3.0)));
    series = fma(series, square, two);
    fma(u, series, positive::<N>(x))
}

/// See [`Activation::Laplace`].
#[cube]
fn laplace<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::new(0.0f32);
    let mean = Vector::<f32, N>::new(comptime!(LAPLACE_MEAN));
    let z = (x - mean) / Vector::new(comptime!(LAPLACE_DEVIATION));
    let is_below = z.less_than(&zero);
    let tail = tail::<N>(select_many(is_below, -z, z));
    select_many(is_below, tail, Vector::<f32, N>::new(1.0f32) - tail)
}

/// Returns the tail of the normal distribution beyond t, which is at least 0.
#[cube]
fn tail<N: Size>(t: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(1.0f32);
    let k = one / fma(t, Vector::new(comptime!(TAIL_SLOPE)), one);
    let mut p = Vector::<f32, N>::new(comptime!(TAIL[8]));
    p = fma(p, k, Vector::new(comptime!(TAIL[7])));
    p = fma(p, k, Vector::new(comptime!(TAIL[6])));
    p = fma(p, k, Vector::new(comptime!(TAIL[5])));
    p = fma(p, k, Vector::new(comptime!(TAIL[4])));
    p = fma(p, k, Vector::new(comptime!(TAIL[3])));
    p = fma(p, k, Vector::new(comptime!(TAIL[2])));
    p = fma(p, k, Vector::new(comptime!(TAIL[1])));
    p = fma(p, k, Vector::new(comptime!(TAIL[0])));
    (t * t * Vector::new(-0.5f32)).exp() * (p * k)
}

/// See [`Activation::XIelu`].
#[cube]
fn xielu<N: Size>(x: Vector<f32, N>, function: &Function) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::new(0.0f32);
    let eps = Vector::<f32, N>::new(function.eps);
    let limited = select_many(x.greater_than(&eps), eps, x);
    let below = (expm1::<N>(limited) - x) * Vector::new(function.alpha_n);
    let below = select_many(x.greater_than(&zero), zero, below);
    let above = positive::<N>(x);
    let linear = fma(x, Vector::new(function.beta), below);
    fma(above * Vector::new(function.alpha_p), above, linear)
}
