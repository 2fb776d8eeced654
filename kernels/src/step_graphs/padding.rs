//! Padding of steps, so that few numbers of rows occur.

use crate::AttentionMetadata;

/// Most rows of a recording. Larger steps keep a GPU busy for longer than their launches take.
const ROWS_MAX: usize = 256;

/// Returns the rows of a recording for a batch: vLLM's sizes, but coarser for large batches. Each
/// size is another recording's memory, and products compute more than 32 rows in large tiles.
/// `None`: the batch does not consist of single tokens, or is too large.
pub(super) fn rows_of(meta: &AttentionMetadata) -> Option<usize> {
    let seqs = meta.num_seqs();
    let is_plain = meta.visible_ends.is_empty() && meta.num_guesses.is_empty();
    if seqs == 0 || seqs != meta.num_tokens() || !is_plain {
        return None;
    }
    let rows = match seqs {
        ..=4 => seqs.next_power_of_two(),
        5..=32 => seqs.next_multiple_of(8),
        33..=128 => seqs.next_multiple_of(16),
        _ => seqs.next_multiple_of(32),
    };
    (rows <= ROWS_MAX).then_some(rows)
}

/// Adds sequences of one token in block 0, up to `rows`.
pub(super) fn fill_up(token_ids: &mut Vec<u32>, metas: &mut [AttentionMetadata], rows: usize) {
    token_ids.resize(rows, 0);
    for meta in metas {
        for row in meta.num_seqs()..rows {
            meta.query_start_loc.push(row as u32 + 1);
            meta.seq_lens.push(1);
            meta.block_tables.push(vec![0]);
            meta.slot_mapping.push(0);
            meta.positions.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::KvCacheShape;

    fn batch(seqs: usize) -> (Vec<u32>, AttentionMetadata) {
        let meta = AttentionMetadata {
            query_start_loc: (0..=seqs as u32).collect(),
            seq_lens: vec![3; seqs],
            block_tables: vec![vec![1]; seqs],
            slot_mapping: vec![6; seqs],
            positions: vec![2; seqs],
            visible_ends: Vec::new(),
            num_guesses: Vec::new(),
        };
        (vec![9; seqs], meta)
    }

    #[test]
    fn rows_grow_in_steps() {
        let rows = |seqs| rows_of(&batch(seqs).1);
        let all: BTreeSet<usize> = (1..=ROWS_MAX).filter_map(rows).collect();
        let few = [1, 2, 4, 8, 16, 24, 32];
        let many = [48, 64, 80, 96, 112, 128, 160, 192, 224, 256];
        assert_eq!(Vec::from_iter(all), [&few[..], &many].concat());
        for (seqs, expected) in [(3, 4), (5, 8), (32, 32), (33, 48), (70, 80), (129, 160)] {
            assert_eq!(rows(seqs), Some(expected), "{seqs}");
        }
        assert_eq!((rows(0), rows(256), rows(257)), (None, Some(256), None));
    }

    #[test]
    fn chunks_of_prompts_are_not_recorded() {
        let (_, mut meta) = batch(2);
        meta.query_start_loc[2] = 3;
        meta.positions.push(3);
        assert_eq!(rows_of(&meta), None);
    }

    #[test]
    fn a_step_that_was_filled_up_is_one_that_kernels_take() {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 2,
            block_size: 4,
            num_kv_heads: 1,
            head_dim: 8,
            value_head_dim: 8,
            values_in_keys: false,
            state_len: 0,
        };
        let (mut ids, mut meta) = batch(5);
        fill_up(&mut ids, std::slice::from_mut(&mut meta), 8);
        meta.validate(&shape).unwrap();
        assert_eq!((ids.len(), meta.num_seqs(), meta.num_tokens()), (8, 8, 8));
        assert_eq!((&ids[..5], &meta.slot_mapping[..5]), (&[9; 5][..], &[6; 5][..]));
    }
}
