//! Sequences over a small cache, for tests of operations with a state.

use burn::tensor::Device;

use crate::kv_cache::KvLayer;
use crate::{AttentionMetadata, KvCache, KvCacheShape, KvDtype};

const BLOCK_SIZE: usize = 8;
/// Blocks of a sequence.
const NUM_BLOCKS: usize = 20;

/// Returns numbers between −1 and 1.
pub(crate) fn noise(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7_919 + seed * 104_729) as f32 * 0.618).sin()).collect()
}

/// Runs sequences of these lengths, each of which advances by the numbers of tokens in `steps`, in
/// turn. `compute` fills the rows `[num_tokens, width]` of a step, whose sequences and positions it
/// gets. Returns the rows of each sequence.
pub(crate) fn in_steps<const N: usize>(
    state_len: usize,
    lens: [usize; N],
    steps: &[usize],
    width: usize,
    compute: impl FnMut(&mut KvLayer, &AttentionMetadata, &[(usize, usize)], &mut [f32]),
) -> [Vec<f32>; N] {
    in_steps_on(&Device::flex(), state_len, lens, steps, width, compute)
}

/// Does the same with a cache on `device`.
pub(crate) fn in_steps_on<const N: usize>(
    device: &Device,
    state_len: usize,
    lens: [usize; N],
    steps: &[usize],
    width: usize,
    mut compute: impl FnMut(&mut KvLayer, &AttentionMetadata, &[(usize, usize)], &mut [f32]),
) -> [Vec<f32>; N] {
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks: 1 + N * NUM_BLOCKS,
        block_size: BLOCK_SIZE,
        num_kv_heads: 0,
        head_dim: 0,
        value_head_dim: 0,
        values_in_keys: false,
        state_len,
    };
    let mut kv = KvCache::new(shape, KvDtype::Bf16, device).unwrap();
    let mut results = lens.map(|_| Vec::new());
    for step in steps.iter().cycle() {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        let mut tokens = Vec::new();
        for (seq, len) in lens.iter().enumerate() {
            let start = results[seq].len() / width;
            let end = len.min(&(start + step)).to_owned();
            if start == end {
                continue;
            }
            tokens.extend((start..end).map(|position| (seq, position)));
            meta.positions.extend(start as u32..end as u32);
            meta.query_start_loc.push(tokens.len() as u32);
            meta.seq_lens.push(end as u32);
            let first = 1 + seq * NUM_BLOCKS;
            meta.block_tables.push((first..first + NUM_BLOCKS).map(|block| block as u32).collect());
        }
        if tokens.is_empty() {
            break;
        }
        let mut rows = vec![f32::NAN; tokens.len() * width];
        compute(kv.layer_mut(0), &meta, &tokens, &mut rows);
        for ((seq, _), row) in tokens.iter().zip(rows.chunks_exact(width)) {
            results[*seq].extend_from_slice(row);
        }
    }
    results
}
