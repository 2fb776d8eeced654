//! Straight loops in f64.

use super::ElementMap;

/// Maps each element of `x`.
pub(crate) fn map(x: &[f32], map: ElementMap) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x {
        let x = f64::from(*x);
        y.push(match map {
            ElementMap::Scale(factor) => x * f64::from(factor),
            ElementMap::SoftCap(cap) => f64::from(cap) * (x / f64::from(cap)).tanh(),
            ElementMap::Clamp(limit) => x.clamp(-f64::from(limit), f64::from(limit)),
        });
    }
    y
}

/// Computes `x + factor · y`.
pub(crate) fn add_scaled(x: &[f32], y: &[f32], factor: f32) -> Vec<f64> {
    let mut sums = Vec::new();
    for (x, y) in x.iter().zip(y) {
        sums.push(f64::from(*x) + f64::from(factor) * f64::from(*y));
    }
    sums
}
