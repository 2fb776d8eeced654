//! Batches of whole prompts, of which no later step reads anything, in parts that fit the caches of
//! a CPU.

use std::{ops::Range, slice};

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{AttentionMetadata, KvCache};

use crate::model::{Adapters, Backbone, Positions, Step};

/// Most tokens of a part. The widest activations of a small encoder then take a few megabytes. With
/// BERT's base shape and texts of 128 tokens, parts of 512 are 5 % faster than one of 4,096.
const PART_TOKENS: usize = 512;

/// Returns the hidden states of a batch without adapters and media. `cache` has no layers.
pub(super) fn forward(
    backbone: &dyn Backbone,
    token_ids: &[u32],
    types: &[u32],
    batch: &AttentionMetadata,
    cache: &mut KvCache,
) -> Tensor<2> {
    let hidden = backbone.embed(token_ids, Adapters::none());
    let mut of = |hidden: Tensor<2>, types: &[u32], batch: &AttentionMetadata| {
        let positions = Positions::of_text(batch).with_types(types);
        let mut step = Step::of_groups(slice::from_ref(batch), &[], cache);
        backbone.forward(hidden, positions, &mut step)
    };
    // A GPU is faster with all rows at once.
    if hidden.device() != Device::flex() || batch.num_tokens() <= PART_TOKENS {
        return of(hidden, types, batch);
    }
    let width = hidden.dims()[1];
    let of_part = |Part { tokens, meta }: Part| {
        let types = types.get(tokens.clone()).unwrap_or_default();
        of(hidden.clone().slice([tokens, 0..width]), types, &meta)
    };
    Tensor::cat(parts(batch).into_iter().map(of_part).collect(), 0)
}

/// Some sequences of a batch.
struct Part {
    /// The rows of their tokens in the batch.
    tokens: Range<usize>,
    /// Their places, as those of a batch of their own.
    meta: AttentionMetadata,
}

/// Cuts a batch between sequences. A sequence longer than a part is a part of its own.
fn parts(batch: &AttentionMetadata) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut first = 0;
    for end in 1..=batch.num_seqs() {
        let tokens = |seqs: Range<usize>| {
            batch.query_start_loc[seqs.start] as usize..batch.query_start_loc[seqs.end] as usize
        };
        let is_last = end == batch.num_seqs();
        if is_last || tokens(first..end + 1).len() > PART_TOKENS {
            parts.push(part(batch, first..end, tokens(first..end)));
            first = end;
        }
    }
    parts
}

fn part(batch: &AttentionMetadata, seqs: Range<usize>, tokens: Range<usize>) -> Part {
    // Metadata of a model without a KV cache has no slots.
    let rows = |all: &[u32]| all.get(tokens.clone()).map(<[u32]>::to_vec).unwrap_or_default();
    let starts = &batch.query_start_loc[seqs.start..=seqs.end];
    let meta = AttentionMetadata {
        query_start_loc: starts.iter().map(|start| start - starts[0]).collect(),
        seq_lens: batch.seq_lens[seqs.clone()].to_vec(),
        block_tables: batch.block_tables.get(seqs).map(<[_]>::to_vec).unwrap_or_default(),
        slot_mapping: rows(&batch.slot_mapping),
        positions: rows(&batch.positions),
        visible_ends: rows(&batch.visible_ends),
        num_guesses: Vec::new(),
    };
    Part { tokens, meta }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::{LoadOptions, load_model};

    fn batch(lens: &[u32]) -> AttentionMetadata {
        let mut batch = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for len in lens {
            batch.query_start_loc.push(batch.positions.len() as u32 + len);
            batch.seq_lens.push(*len);
            batch.positions.extend(0..*len);
        }
        batch
    }

    #[test]
    fn parts_are_whole_sequences_in_order() {
        for (lens, expected) in [
            (&[] as &[u32], &[] as &[&[u32]]),
            (&[128], &[&[128]]),
            (&[128; 4], &[&[128; 4]]),
            (&[128; 5], &[&[128; 4], &[128]]),
            (&[700, 1, 511, 1], &[&[700], &[1, 511], &[1]]),
            (&[1, 700], &[&[1], &[700]]),
        ] {
            let (batch, mut next) = (batch(lens), 0);
            let parts = parts(&batch);
            assert_eq!(parts.len(), expected.len(), "{lens:?}");
            for (part, expected) in parts.iter().zip(expected) {
                let alone = super::tests::batch(expected);
                assert_eq!(part.tokens.start, next);
                next = part.tokens.end;
                assert_eq!(part.meta.seq_lens, alone.seq_lens, "{lens:?}");
                assert_eq!(part.meta.query_start_loc, alone.query_start_loc, "{lens:?}");
                assert_eq!(part.meta.positions, alone.positions, "{lens:?}");
            }
            assert_eq!(next, batch.num_tokens());
        }
    }

    /// The second part has two sequences, so its rows are not where they are in the batch.
    #[test]
    fn a_batch_in_parts_has_the_bytes_of_each_sequence_alone() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/encoders/bert-mean");
        let model = load_model(&folder, &LoadOptions::default(), &mut |_| {}).unwrap();
        let (shape, device) = (model.kv_cache_shape(2, 16), Device::flex());
        let mut cache = KvCache::new(shape, model.dtype.into(), &device).unwrap();
        let lens = [300, 300, 7];
        let batch = batch(&lens);
        assert_eq!(parts(&batch).len(), 2);
        let tokens: Vec<u32> = (0..607).map(|row| 5 + row * 7 % 300).collect();
        let types: Vec<u32> = (0..607).map(|row| row / 3 % 2).collect();
        let backbone = &*model.backbone;
        let mut states = |tokens: &[u32], types: &[u32], batch: &AttentionMetadata| {
            let hidden = forward(backbone, tokens, types, batch, &mut cache);
            hidden.into_data().try_into_vec::<f32>().unwrap()
        };
        let all = states(&tokens, &types, &batch);
        let (mut first, width) = (0, all.len() / 607);
        for len in lens {
            let rows = first..first + len as usize;
            let alone = super::tests::batch(&[len]);
            let alone = states(&tokens[rows.clone()], &types[rows.clone()], &alone);
            assert!(alone == all[rows.start * width..rows.end * width], "{rows:?}");
            first = rows.end;
        }
    }
}
