//! Straight loops in f64.

use super::SelectiveScanConfig;

/// Takes a state over one sequence from its first token on. x and dt are `[num_tokens, channels]`,
/// b and c `[num_tokens, state_size]`.
pub(crate) fn selective_scan([x, dt, b, c]: [&[f32]; 4], config: &SelectiveScanConfig) -> Vec<f64> {
    let SelectiveScanConfig { channels, state_size, .. } = *config;
    let mut state = vec![0.0f64; channels * state_size];
    let mut y = Vec::new();
    for t in 0..x.len() / channels {
        for channel in 0..channels {
            let x = f64::from(x[t * channels + channel]);
            let biased = f64::from(dt[t * channels + channel]) + f64::from(config.dt_bias[channel]);
            let delta = biased.exp().ln_1p();
            let mut sum = f64::from(config.d[channel]) * x;
            for n in 0..state_size {
                let at = channel * state_size + n;
                let decay = (delta * f64::from(config.a[at])).exp();
                state[at] = state[at] * decay + delta * x * f64::from(b[t * state_size + n]);
                sum += state[at] * f64::from(c[t * state_size + n]);
            }
            y.push(sum);
        }
    }
    y
}
