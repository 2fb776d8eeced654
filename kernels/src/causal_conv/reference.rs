//! Straight loops in f64.

/// Convolves one sequence from its first token on: x is `[num_tokens, channels]`, `weight`
/// `[channels, kernel]`.
pub(crate) fn causal_conv(x: &[f32], weight: &[f32], bias: &[f32], kernel: usize) -> Vec<f64> {
    let channels = bias.len();
    let mut y = Vec::new();
    for t in 0..x.len() / channels {
        for c in 0..channels {
            let mut sum = f64::from(bias[c]);
            for j in 0..kernel {
                if t + j + 1 >= kernel {
                    let before = x[(t + j + 1 - kernel) * channels + c];
                    sum += f64::from(weight[c * kernel + j]) * f64::from(before);
                }
            }
            y.push(sum);
        }
    }
    y
}
