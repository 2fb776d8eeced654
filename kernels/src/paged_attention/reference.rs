//! Straight loops in f64.

use half::bf16;

use super::{AttentionMask, AttentionMetadata, AttentionParams};
use crate::{KvCacheShape, WeightVector};

/// Computes attention of q `[num_tokens, num_heads * head_dim]`. `stored(position, seq, kv_head)`
/// returns a key and its value. The values' width is `value_head_dim`.
pub(crate) fn paged_attention(
    q: &[f32],
    shape: &KvCacheShape,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    stored: impl Fn(usize, usize, usize) -> [Vec<f32>; 2],
) -> Vec<f64> {
    let [slopes, sinks] = [&params.alibi_slopes, &params.sinks]
        .map(|vector| vector.as_ref().map(WeightVector::to_host));
    let mut o = Vec::new();
    for seq in 0..meta.seq_lens.len() {
        for t in meta.query_start_loc[seq] as usize..meta.query_start_loc[seq + 1] as usize {
            for head in 0..params.num_heads {
                let query = Query {
                    q: &q[(t * params.num_heads + head) * shape.head_dim..][..shape.head_dim],
                    i: meta.positions[t] as usize,
                    len: meta.seq_lens[seq] as usize,
                    end: meta.visible_ends.get(t).map_or(0, |end| *end as usize),
                    head,
                    slope: slopes.as_ref().map_or(0.0, |slopes| f64::from(slopes[head])),
                    sink: sinks.as_ref().map(|sinks| f64::from(sinks[head])),
                };
                let kv_head = head / (params.num_heads / shape.num_kv_heads);
                let out = query.attend(params, |j| stored(j, seq, kv_head));
                assert_eq!(out.len(), shape.value_head_dim);
                o.extend(out);
            }
        }
    }
    o
}

fn is_visible(j: usize, i: usize, mask: AttentionMask) -> bool {
    match mask {
        AttentionMask::Full => j <= i,
        AttentionMask::Sliding(window) => j <= i && j + window as usize > i,
        AttentionMask::Chunked(chunk) => j <= i && j / chunk as usize == i / chunk as usize,
        AttentionMask::ChunkPairs(chunk) => j <= i && j / chunk as usize + 1 >= i / chunk as usize,
        AttentionMask::Both => true,
        AttentionMask::Around(window) => j.abs_diff(i) < window as usize,
    }
}

/// One head of a query at position `i`.
struct Query<'a> {
    q: &'a [f32],
    i: usize,
    /// Number of keys of its sequence.
    len: usize,
    /// One behind the last key that it sees, if that is behind its own.
    end: usize,
    head: usize,
    slope: f64,
    sink: Option<f64>,
}

impl Query<'_> {
    fn sees(&self, j: usize, mask: AttentionMask) -> bool {
        is_visible(j, self.i, mask) || j > self.i && j < self.end
    }

    fn attend(
        &self,
        params: &AttentionParams,
        stored: impl Fn(usize) -> [Vec<f32>; 2],
    ) -> Vec<f64> {
        let mut total = 0.0;
        let mut max = self.sink.unwrap_or(f64::NEG_INFINITY);
        let mut seen = Vec::new();
        for j in (0..self.len).filter(|j| self.sees(*j, params.mask)) {
            let [key, value] = stored(j);
            let dot: f64 =
                self.q.iter().zip(&key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let mut score = dot * f64::from(params.scale);
            if let Some(cap) = params.soft_cap.map(f64::from) {
                score = cap * (score / cap).tanh();
            }
            score += match params.rounds_alibi {
                true => {
                    let rounded = |x: f32| bf16::from_f32(x).to_f32();
                    let bias = rounded(self.slope as f32 * rounded(j as f32));
                    f64::from(bias) * f64::from(params.scale)
                }
                false => self.slope * (j as f64 - self.i as f64),
            };
            if let Some(biases) = &params.distance_biases {
                score += f64::from(biases.of(self.head, j as i64 - self.i as i64));
            }
            max = max.max(score);
            seen.push((score, value));
        }
        if let Some(sink) = self.sink {
            total += (sink - max).exp();
        }
        let mut out = Vec::new();
        for (score, value) in seen {
            let weight = (score - max).exp();
            total += weight;
            out.resize(value.len(), 0.0);
            for (o, v) in out.iter_mut().zip(value) {
                *o += weight * f64::from(v);
            }
        }
        out.iter_mut().for_each(|o| *o /= total);
        out
    }
}
