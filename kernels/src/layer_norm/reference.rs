//! Straight loops in f64.

/// Normalises each row of `x`.
pub(crate) fn layer_norm(
    x: &[f32],
    features: usize,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(features) {
        let mut sum = 0.0;
        for v in row {
            sum += f64::from(*v);
        }
        let mean = sum / features as f64;
        let mut squares = 0.0;
        for v in row {
            squares += (f64::from(*v) - mean).powi(2);
        }
        let scale = 1.0 / (squares / features as f64 + f64::from(eps)).sqrt();
        for (i, v) in row.iter().enumerate() {
            let weight = weight.map_or(1.0, |weight| f64::from(weight[i]));
            let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
            y.push((f64::from(*v) - mean) * scale * weight + bias);
        }
    }
    y
}
