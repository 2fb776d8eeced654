//! Functions of vectors that a device lacks, or has only with a large error near 0. NaN stays NaN,
//! unless a driver assumes that there is none.

use cubecl::prelude::*;

/// Below this size `e^x − 1` is a polynomial, because the difference would lose digits.
const NEAR_ZERO: f32 = 0.35;

/// From here on `tanh` is 1 in f32.
const TANH_MAX: f32 = 20.0;

/// Returns `ln(1 + e^x)`, also where it is near 0: `max(x, 0) + ln(1 + e^−|x|)`. The logarithm is
/// `2 · atanh(u)` of `u = e / (e + 2)`, at most 1/3, by its series.
#[cube]
pub(crate) fn softplus(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let u = e / (e + 2.0f32);
    let square = u * u;
    let mut series = comptime!(2.0f32 / 15.0).runtime();
    series = fma(series, square, comptime!(2.0f32 / 13.0).runtime());
    series = fma(series, square, comptime!(2.0f32 / 11.0).runtime());
    series = fma(series, square, comptime!(2.0f32 / 9.0).runtime());
    series = fma(series, square, comptime!(2.0f32 / 7.0).runtime());
    series = fma(series, square, comptime!(2.0f32 / 5.0).runtime());
    series = fma(series, square, comptime!(2.0f32 / 3.0).runtime());
    series = fma(series, square, 2.0f32.runtime());
    fma(u, series, select(x > 0.0f32, x, 0.0f32.runtime()))
}

/// Returns x within `±limit`.
#[cube]
pub(crate) fn clamped<N: Size>(x: Vector<f32, N>, limit: Vector<f32, N>) -> Vector<f32, N> {
    let low = -limit;
    let x = select_many(x.less_than(&low), low, x);
    select_many(x.greater_than(&limit), limit, x)
}

/// Returns x, but 0 where x is below 0.
#[cube]
pub(crate) fn positive<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::new(0.0f32);
    select_many(x.less_than(&zero), zero, x)
}

/// Returns `e^x − 1`, also near 0. It uses the Taylor polynomial of degree 8 there, whose first
/// omitted term is below 1e-9 of the result.
#[cube]
pub(crate) fn expm1<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let mut p = Vector::<f32, N>::new(comptime!(1.0f32 / 40320.0));
    p = fma(p, x, Vector::new(comptime!(1.0f32 / 5040.0)));
    p = fma(p, x, Vector::new(comptime!(1.0f32 / 720.0)));
    p = fma(p, x, Vector::new(comptime!(1.0f32 / 120.0)));
    p = fma(p, x, Vector::new(comptime!(1.0f32 / 24.0)));
    p = fma(p, x, Vector::new(comptime!(1.0f32 / 6.0)));
    p = fma(p, x, Vector::new(0.5f32));
    p = fma(p, x, Vector::new(1.0f32));
    let near = p * x;
    let far = x.exp() - Vector::new(1.0f32);
    let bound = Vector::<f32, N>::new(comptime!(NEAR_ZERO));
    let low = -bound;
    let result = select_many(x.less_than(&low), far, near);
    select_many(x.greater_than(&bound), far, result)
}

/// Returns `tanh x`, also near 0, and ±1 for large x.
#[cube]
pub(crate) fn tanh<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let x = clamped::<N>(x, Vector::new(comptime!(TANH_MAX)));
    let e = expm1::<N>(x + x);
    e / (e + Vector::new(2.0f32))
}
