//! Straight loops in f64.

use super::{GatedDeltaRule, KimiDecay, KimiDeltaRule, LinearHeads};

/// One sequence of the gated delta rule. Returns `[num_tokens, num_heads · value_dim]`.
pub(crate) fn gated_delta_rule(rule: &GatedDeltaRule, qkv: &[f32], gates: &[f32]) -> Vec<f64> {
    let LinearHeads { num_key_heads, num_heads, key_dim, value_dim } = rule.heads;
    let keys = num_key_heads * key_dim;
    let width = 2 * keys + num_heads * value_dim;
    let mut states = vec![0.0; num_heads * key_dim * value_dim];
    let mut y = Vec::new();
    for (row, gates) in qkv.chunks_exact(width).zip(gates.chunks_exact(2 * num_heads)) {
        let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        for head in 0..num_heads {
            let at = head / (num_heads / num_key_heads) * key_dim;
            let mut q = unit(&row[at..at + key_dim]);
            let k = unit(&row[keys + at..keys + at + key_dim]);
            q.iter_mut().for_each(|q| *q /= (key_dim as f64).sqrt());
            let v = &row[2 * keys + head * value_dim..][..value_dim];
            let beta = f64::from(rule.beta_max) / (1.0 + f64::from(-gates[head]).exp());
            let a = f64::from(gates[num_heads + head]) + f64::from(rule.dt_bias.cpu()[head]);
            let decay = (-f64::from(rule.a_log.cpu()[head]).exp() * a.exp().ln_1p()).exp();
            let state = &mut states[head * key_dim * value_dim..][..key_dim * value_dim];
            state.iter_mut().for_each(|x| *x *= decay);
            for j in 0..value_dim {
                let read: f64 = (0..key_dim).map(|i| state[i * value_dim + j] * k[i]).sum();
                let delta = (v[j] - read) * beta;
                (0..key_dim).for_each(|i| state[i * value_dim + j] += k[i] * delta);
                y.push((0..key_dim).map(|i| state[i * value_dim + j] * q[i]).sum());
            }
        }
    }
    y
}

/// One sequence of Kimi's delta rule. Returns `[num_tokens, num_heads · value_dim]`.
pub(crate) fn kimi_delta_rule(
    rule: &KimiDeltaRule,
    qkv: &[f32],
    gates: &[f32],
    b: &[f32],
) -> Vec<f64> {
    let LinearHeads { num_key_heads, num_heads, key_dim, value_dim } = rule.heads();
    let keys = num_key_heads * key_dim;
    let width = 2 * keys + num_heads * value_dim;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut states = vec![0.0; num_heads * key_dim * value_dim];
    let mut y = Vec::new();
    for (token, row) in qkv.chunks_exact(width).enumerate() {
        let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        for head in 0..num_heads {
            let at = head / (num_heads / num_key_heads) * key_dim;
            let mut q = unit(&row[at..at + key_dim]);
            let k = unit(&row[keys + at..keys + at + key_dim]);
            q.iter_mut().for_each(|q| *q /= (key_dim as f64).sqrt());
            let v = &row[2 * keys + head * value_dim..][..value_dim];
            let place = token * num_heads + head;
            let beta = sigmoid(f64::from(b[place]));
            let state = &mut states[head * key_dim * value_dim..][..key_dim * value_dim];
            for i in 0..key_dim {
                let [rate, bias] = rule.weights(head, i);
                let x = f64::from(gates[place * key_dim + i]) + bias;
                let decay = match rule.decay() {
                    KimiDecay::Softplus => (-rate * x.exp().ln_1p()).exp(),
                    KimiDecay::Bounded(bound) => (f64::from(bound) * sigmoid(rate * x)).exp(),
                };
                state[i * value_dim..][..value_dim].iter_mut().for_each(|x| *x *= decay);
            }
            for j in 0..value_dim {
                let read: f64 = (0..key_dim).map(|i| state[i * value_dim + j] * k[i]).sum();
                let delta = (v[j] - read) * beta;
                (0..key_dim).for_each(|i| state[i * value_dim + j] += k[i] * delta);
                y.push((0..key_dim).map(|i| state[i * value_dim + j] * q[i]).sum());
            }
        }
    }
    y
}

/// Returns a vector divided by its length.
fn unit(x: &[f64]) -> Vec<f64> {
    let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
    x.iter().map(|x| x / length).collect()
}

/// One sequence of lightning attention, without states: each output is a sum over all tokens
/// before. Returns `[num_tokens, num_heads · head_dim]`.
pub(crate) fn lightning_attention(head_dim: usize, qkv: &[f32], slopes: &[f32]) -> Vec<f64> {
    let (heads, width) = (slopes.len(), 3 * slopes.len() * head_dim);
    let tokens = qkv.len() / width;
    let element = |token: usize, part: usize, head: usize, i: usize| {
        f64::from(qkv[token * width + (part * heads + head) * head_dim + i])
    };
    let mut y = Vec::new();
    for t in 0..tokens {
        for (head, slope) in slopes.iter().enumerate() {
            for j in 0..head_dim {
                y.push(
                    (0..=t)
                        .map(|u| {
                            let score: f64 = (0..head_dim)
                                .map(|i| element(t, 0, head, i) * element(u, 1, head, i))
                                .sum();
                            let decay = (-f64::from(*slope) * (t - u) as f64).exp();
                            score * decay * element(u, 2, head, j)
                        })
                        .sum(),
                );
            }
        }
    }
    y
}
