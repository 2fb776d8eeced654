//! Straight loops in f64.

use super::{AttentionMetadata, AttentionParams};

/// Computes attention of q `[num_tokens, num_heads * head_dim]`. `stored(position, seq, kv_head)`
/// returns a key and its value.
pub(crate) fn paged_attention(
    q: &[f32],
    head_dim: usize,
    num_kv_heads: usize,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    stored: impl Fn(usize, usize, usize) -> [Vec<f32>; 2],
) -> Vec<f64> {
    let width = params.num_heads * head_dim;
    let mut o = vec![0.0; q.len()];
    for seq in 0..meta.seq_lens.len() {
        for t in meta.query_start_loc[seq] as usize..meta.query_start_loc[seq + 1] as usize {
            let i = meta.positions[t] as usize;
            for head in 0..params.num_heads {
                let start = t * width + head * head_dim;
                let query = &q[start..start + head_dim];
                let kv_head = head / (params.num_heads / num_kv_heads);
                let out = &mut o[start..start + head_dim];
                one_query(query, i, params, |j| stored(j, seq, kv_head), out);
            }
        }
    }
    o
}

fn one_query(
    q: &[f32],
    i: usize,
    params: &AttentionParams,
    stored: impl Fn(usize) -> [Vec<f32>; 2],
    out: &mut [f64],
) {
    let mut total = 0.0;
    let mut max = f64::NEG_INFINITY;
    let mut seen = Vec::new();
    for j in 0..=i {
        if params.sliding_window.is_some_and(|w| j + w as usize <= i) {
            continue;
        }
        let [key, value] = stored(j);
        let dot: f64 = q.iter().zip(&key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let mut score = dot * f64::from(params.scale);
        if let Some(cap) = params.soft_cap.map(f64::from) {
            score = cap * (score / cap).tanh();
        }
        max = max.max(score);
        seen.push((score, value));
    }
    for (score, value) in seen {
        let weight = (score - max).exp();
        total += weight;
        for (o, v) in out.iter_mut().zip(value) {
            *o += weight * f64::from(v);
        }
    }
    out.iter_mut().for_each(|o| *o /= total);
}
