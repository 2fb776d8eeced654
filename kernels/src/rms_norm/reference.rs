//! Straight loops in f64.

/// Normalises each row of `x`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(weight.len()) {
        let mut sum = 0.0;
        for v in row {
            sum += f64::from(*v) * f64::from(*v);
        }
        let scale = 1.0 / (sum / row.len() as f64 + f64::from(eps)).sqrt();
        y.extend(row.iter().zip(weight).map(|(v, w)| f64::from(*v) * scale * f64::from(*w)));
    }
    y
}
