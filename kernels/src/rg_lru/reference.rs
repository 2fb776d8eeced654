//! Straight loops in f64.

use super::RgLruConfig;

/// Takes a state over one sequence from its first token on. x is `[num_tokens, channels]`, and the
/// gates are `[num_tokens, num_heads, 2, head_dim]`.
pub(crate) fn rg_lru(x: &[f32], gates: &[f32], config: &RgLruConfig) -> Vec<f64> {
    let channels = config.rates.len();
    let head_dim = channels / config.num_heads;
    let mut state = vec![0.0f64; channels];
    let mut y = Vec::new();
    for t in 0..x.len() / channels {
        for channel in 0..channels {
            let at = channel / head_dim * 2 * head_dim + channel % head_dim;
            let gate = |at: usize| {
                let biased =
                    f64::from(gates[t * 2 * channels + at]) + f64::from(config.gate_biases[at]);
                1.0 / (1.0 + (-biased).exp())
            };
            let log_a = -f64::from(config.rates[channel]) * gate(at + head_dim);
            let factor = if t == 0 { 1.0 } else { (-(2.0 * log_a).exp_m1()).sqrt() };
            let input = f64::from(x[t * channels + channel]) * gate(at) * factor;
            state[channel] = state[channel] * log_a.exp() + input;
            y.push(state[channel]);
        }
    }
    y
}
