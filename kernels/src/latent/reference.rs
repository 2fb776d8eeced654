//! Straight loops in f64.

/// Returns `W x` for `w` `[outputs, x.len()]`, and for each output the sum of the magnitudes in it.
pub(super) fn product(w: &[f32], x: &[f32]) -> Vec<(f64, f64)> {
    let dot = |row: &[f32]| {
        row.iter().zip(x).fold((0.0, 0.0), |(sum, size), (w, x)| {
            let term = f64::from(*w) * f64::from(*x);
            (sum + term, size + term.abs())
        })
    };
    w.chunks_exact(x.len()).map(dot).collect()
}

/// Returns `x` turned by the angles of `position`: pairs are `x[i]` and `x[i + len / 2]`.
pub(super) fn rotated(x: &[f32], position: u32) -> Vec<f64> {
    let half = x.len() / 2;
    let mut y = vec![0.0; x.len()];
    for i in 0..half {
        let (sin, cos) = angle(position, i, half).sin_cos();
        let (a, b) = (f64::from(x[i]), f64::from(x[i + half]));
        y[i] = a * cos - b * sin;
        y[i + half] = b * cos + a * sin;
    }
    y
}

/// Returns the angle of pair `i` of `half` at a position.
pub(super) fn angle(position: u32, i: usize, half: usize) -> f64 {
    f64::from(position) * 10_000f64.powf(-(i as f64) / half as f64)
}

/// Returns `x / rms(x) · weight`.
pub(super) fn normed(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(eps)).sqrt().recip();
    x.iter().zip(weight).map(|(x, weight)| f64::from(*x) * scale * f64::from(*weight)).collect()
}
