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

/// Returns `e^x` within 2 ulp; exactly 1 at 0 and 0 at −∞; NaN stays NaN. It uses the Taylor
/// polynomial of degree 7 on `|r| <= ln 2 / 2`, where the first omitted term is below 6e-9.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let clamped = s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x));
    let shifted = s.fma(clamped, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.add(shifted, s.splat(-ROUND));
    let r = s.fma(n, s.splat(-LN2_HIGH), clamped);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.zero_below(s.mul(p, s.pow2(n)), x, s.splat(EXP_MIN))
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

/// Returns the largest lane.
#[inline(always)]
pub(crate) fn max_of<S: Simd>(s: S, v: S::V) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, v);
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}
