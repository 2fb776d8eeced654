//! The native attention.

use burn_flex::FlexTensor;
use half::bf16;

use super::{AttentionMetadata, AttentionParams};
use crate::kv_cache::cpu::{CpuKv, CpuKvData};
use crate::kv_cache::{KvLayer, KvStorage};
use crate::tensors::{dense, dims2, from_rows, values};

/// Keys summed from zero before they join the running softmax.
pub(crate) const SPAN: usize = 256;

/// Attention on CPU tensors.
pub(crate) fn paged_attention(
    q: FlexTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let KvStorage::Cpu(kv) = layer.storage();
    let (heads, head_dim) = (params.num_heads, kv.layout.head_dim);
    let shape = [meta.num_tokens(), heads * head_dim];
    assert_eq!(dims2(&q), shape, "paged_attention: q");
    let q = dense(q);
    let mut o = vec![0.0; shape[0] * shape[1]];
    for seq in 0..meta.num_seqs() {
        for token in meta.tokens_of(seq) {
            for head in 0..heads {
                let at = token * shape[1] + head * head_dim;
                let q = &values(&q)[at..at + head_dim];
                let i = meta.positions[token] as usize;
                let out = &mut o[at..at + head_dim];
                one_query(kv, &meta.block_tables[seq], i, head, q, params, out);
            }
        }
    }
    from_rows(o, shape[0], shape[1])
}

fn one_query(
    kv: &CpuKv,
    blocks: &[u32],
    i: usize,
    head: usize,
    q: &[f32],
    params: &AttentionParams,
    out: &mut [f32],
) {
    let layout = kv.layout;
    let kv_head = head * layout.num_kv_heads / params.num_heads;
    let first = params.sliding_window.map_or(0, |w| (i + 1).saturating_sub(w as usize));
    let read = |value: bool, j: usize, d: usize| {
        let (block, offset) = (blocks[j / layout.block_size] as usize, j % layout.block_size);
        let at = layout.head_start(block, kv_head)
            + if value { layout.value_at(offset, d) } else { layout.key_at(offset, d) };
        match (&kv.data, value) {
            (CpuKvData::F32 { keys, .. }, false) => keys[at],
            (CpuKvData::F32 { values, .. }, true) => values[at],
            (CpuKvData::Bf16 { keys, .. }, false) => bf16::from_bits(keys[at]).to_f32(),
            (CpuKvData::Bf16 { values, .. }, true) => bf16::from_bits(values[at]).to_f32(),
        }
    };
    let mut scores: Vec<f32> = (first..=i)
        .map(|j| (0..q.len()).map(|d| q[d] * read(false, j, d)).sum::<f32>() * params.scale)
        .map(|s| params.soft_cap.map_or(s, |c| c * (s / c).tanh()))
        .collect();
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|s| *s = (*s - max).exp());
    let sum: f32 = scores.iter().sum();
    for (d, o) in out.iter_mut().enumerate() {
        *o = (first..=i).map(|j| scores[j - first] * read(true, j, d)).sum::<f32>() / sum;
    }
}
