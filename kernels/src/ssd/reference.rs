//! Straight loops in f64.

use super::SsdConfig;

/// Takes a state over one sequence from its first token on. `xbc` is `[num_tokens, columns]`, `dt`
/// `[num_tokens, num_heads]`.
pub(crate) fn ssd(xbc: &[f32], dt: &[f32], config: &SsdConfig) -> Vec<f64> {
    let SsdConfig { num_heads, head_dim, state_size, num_groups, .. } = *config;
    let (width, columns) =
        (num_heads * head_dim, num_heads * head_dim + 2 * num_groups * state_size);
    let mut state = vec![0.0f64; num_heads * head_dim * state_size];
    let mut y = Vec::new();
    for (xbc, dt) in xbc.chunks_exact(columns).zip(dt.chunks_exact(num_heads)) {
        for head in 0..num_heads {
            let biased =
                f64::from(dt[head]) * f64::from(config.dt_scale) + f64::from(config.dt_bias[head]);
            let [least, most] = config.dt_limit.map(f64::from);
            let delta = biased.exp().ln_1p().clamp(least, most);
            let decay = (delta * f64::from(config.a[head])).exp();
            let group = head / (num_heads / num_groups);
            for p in 0..head_dim {
                let x = f64::from(xbc[head * head_dim + p]);
                let mut sum = f64::from(config.d[head]) * x;
                for n in 0..state_size {
                    let b = f64::from(xbc[width + group * state_size + n]);
                    let c = f64::from(xbc[width + (num_groups + group) * state_size + n]);
                    let state = &mut state[(head * head_dim + p) * state_size + n];
                    *state = *state * decay + delta * x * b;
                    sum += *state * c;
                }
                y.push(sum);
            }
        }
    }
    y
}
