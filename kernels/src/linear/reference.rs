//! Straight loops in f64.

/// Computes `x Wᵀ + b` for row-major x `[rows, inputs]` and w `[out, inputs]`.
pub(crate) fn linear(x: &[f32], w: &[f32], inputs: usize, bias: Option<&[f32]>) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(inputs) {
        for (o, weights) in w.chunks_exact(inputs).enumerate() {
            let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
            for (a, b) in row.iter().zip(weights) {
                sum += f64::from(*a) * f64::from(*b);
            }
            y.push(sum);
        }
    }
    y
}
