//! Straight loops in f64.

/// Returns what one pair adds to one row: `scale · B (A x)`.
pub(super) fn product(x: &[f32], a: &[f32], b: &[f32], rank: usize, scale: f32) -> Vec<f64> {
    let dot = |a: &[f32]| -> f64 {
        a.iter().zip(x).map(|(a, x)| f64::from(*a) * f64::from(*x)).sum::<f64>() * f64::from(scale)
    };
    let low: Vec<f64> = a.chunks_exact(x.len()).map(dot).collect();
    let of_output = |b: &[f32]| b.iter().zip(&low).map(|(b, low)| f64::from(*b) * low).sum();
    b.chunks_exact(rank).map(of_output).collect()
}
