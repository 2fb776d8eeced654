//! Functions of vectors, with the same steps on every instruction set.

use super::{LANES, Simd};

/// Bounds of the argument: below `EXP_MIN` `exp` is 0, above `EXP_MAX` it stays at `exp(EXP_MAX)` =
/// 2.4e38.
const EXP_MIN: f32 = -87.33;
const EXP_MAX: f32 = 88.37;
/// 1.5 · 2²³: adding and subtracting it rounds to a whole number.
const ROUND: f32 = 12_582_912.0;
/// ln 2 = `LN2_HIGH` + `LN2_LOW`; the high part has 9 bits, so that `n · LN2_HIGH` is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// From here on `tanh` is 1 in f32.
const TANH_MAX: f32 = 20.0;

/// Returns `e^x` within 2 ulp; exactly 1 at 0 and 0 at −∞; NaN stays NaN. It uses the Taylor
/// polynomial of degree 7 on `|r| <= ln 2 / 2`, where the first omitted term is below 6e-9.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduced(s, x);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.zero_below(s.mul(p, s.pow2(n)), x, s.splat(EXP_MIN))
}

/// Returns `e^x − 1` within 1e-6 of its size, also near 0. NaN stays NaN. It uses the polynomial of
/// [`exp`] without its first term.
#[inline(always)]
pub(crate) fn expm1<S: Simd>(s: S, x: S::V) -> S::V {
    let (n, r) = reduced(s, x);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    let power = s.pow2(n);
    s.fma(s.mul(p, r), power, s.add(power, s.splat(-1.0)))
}

/// Returns `tanh x` within 1e-6 of its size, also near 0; ±1 for large x. NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let e = expm1(s, s.mul(limited(s, x, TANH_MAX), s.splat(2.0)));
    s.div(e, s.add(e, s.splat(2.0)))
}

/// Returns `ln(1 + e^x)` within 1e-6 of its size. NaN stays NaN.
///
/// It is `max(x, 0) + ln(1 + e)` with `e = e^(−|x|)`, and `ln(1 + e) = 2 · artanh(e / (2 + e))`,
/// whose series has an argument of at most 1/3: the first omitted term is below 4e-9.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::V) -> S::V {
    let (zero, minus_one) = (s.splat(0.0), s.splat(-1.0));
    let magnitude = s.max(s.mul(x, minus_one), x);
    let e = exp(s, s.mul(magnitude, minus_one));
    let u = s.div(e, s.add(e, s.splat(2.0)));
    let square = s.mul(u, u);
    let mut series = s.splat(2.0 / 15.0);
    for c in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = s.fma(series, square, s.splat(2.0 / c));
    }
    s.fma(u, series, s.max(zero, x))
}

/// Returns x within `±limit`; NaN stays NaN.
#[inline(always)]
pub(crate) fn limited<S: Simd>(s: S, x: S::V, limit: f32) -> S::V {
    s.min(s.splat(limit), s.max(s.splat(-limit), x))
}

/// Returns a whole number n and the rest r, `|r| <= ln 2 / 2`, with `x = n · ln 2 + r`. x is first
/// taken into the bounds of [`exp`].
#[inline(always)]
fn reduced<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let clamped = s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x));
    let shifted = s.fma(clamped, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.add(shifted, s.splat(-ROUND));
    let r = s.fma(n, s.splat(-LN2_HIGH), clamped);
    (n, s.fma(n, s.splat(-LN2_LOW), r))
}

/// Returns the sum of all lanes, adding one half to the other until one lane is left.
#[inline(always)]
pub(crate) fn sum_of<S: Simd>(s: S, v: S::V) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, v);
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Returns the largest lane, comparing one half with the other until one lane is left. NaN does not
/// count, and without other lanes the result is −∞.
#[inline(always)]
pub(crate) fn max_of<S: Simd>(s: S, v: S::V) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, v);
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = lanes[i].max(lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0].max(f32::NEG_INFINITY)
}
