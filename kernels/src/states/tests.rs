//! Comparisons with a loop over the tokens of a sequence.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use proptest::prelude::*;

use super::*;
use crate::threads::SharedMut;
use crate::{KvCache, KvCacheShape, KvDtype};

const BLOCK_SIZE: usize = 4;
const PARTS: usize = 3;
const WIDTH: usize = 5;
/// Numbers of the state before the first part.
const OFFSET: usize = 2;

/// `state = state · 0.5 + token`, whose results are the states.
struct Decay<'a> {
    tokens: &'a [f32],
    results: SharedMut<'a, f32>,
    num_tokens: AtomicUsize,
}

impl Recurrence for Decay<'_> {
    fn num_parts(&self) -> usize {
        PARTS
    }

    fn part(&self, part: usize) -> Range<usize> {
        let start = OFFSET + part * WIDTH;
        start..start + WIDTH
    }

    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>) {
        for row in rows {
            for (i, x) in state.iter_mut().enumerate() {
                *x = *x * 0.5 + self.tokens[row] + (part * WIDTH + i) as f32;
            }
            // SAFETY: no other piece has this row and part.
            let result = unsafe { self.results.slice((row * PARTS + part) * WIDTH, WIDTH) };
            result.copy_from_slice(state);
            self.num_tokens.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn cache(num_blocks: usize, dtype: KvDtype) -> KvCache {
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks,
        block_size: BLOCK_SIZE,
        num_kv_heads: 1,
        head_dim: 2,
        value_head_dim: 2,
        values_in_keys: false,
        state_len: OFFSET + PARTS * WIDTH,
    };
    KvCache::new(shape, dtype, &Device::flex()).unwrap()
}

/// A sequence: its tokens' positions in the step, and its blocks.
type Part<'a> = (Range<usize>, &'a [u32]);

/// Runs one step. The token of sequence `seq` at `position` is `token(seq, position)`. Returns the
/// results of each sequence, and the number of tokens that were computed in all parts.
fn step(
    kv: &mut KvCache,
    seqs: &[Part<'_>],
    token: impl Fn(usize, usize) -> f32,
) -> (Vec<Vec<f32>>, usize) {
    step_with_guesses(kv, seqs, &[], token)
}

/// Does the same for sequences whose last tokens are guesses, so many of each.
fn step_with_guesses(
    kv: &mut KvCache,
    seqs: &[Part<'_>],
    num_guesses: &[u32],
    token: impl Fn(usize, usize) -> f32,
) -> (Vec<Vec<f32>>, usize) {
    let num_guesses = num_guesses.to_vec();
    let query_start_loc = vec![0];
    let mut meta = AttentionMetadata { query_start_loc, num_guesses, ..Default::default() };
    let mut tokens = Vec::new();
    for (seq, (positions, table)) in seqs.iter().enumerate() {
        tokens.extend(positions.clone().map(|position| token(seq, position)));
        meta.query_start_loc.push(tokens.len() as u32);
        meta.positions.extend(positions.clone().map(|position| position as u32));
        meta.seq_lens.push(positions.end as u32);
        meta.block_tables.push(table.to_vec());
    }
    let mut results = vec![f32::NAN; tokens.len() * PARTS * WIDTH];
    let decay = Decay {
        tokens: &tokens,
        results: SharedMut::new(&mut results),
        num_tokens: AtomicUsize::new(0),
    };
    advance_states(kv.layer_mut(0), &meta, usize::MAX, &decay);
    let count = decay.num_tokens.into_inner();
    let of_seq = |seq: usize| {
        let rows = meta.tokens_of(seq);
        results[rows.start * PARTS * WIDTH..rows.end * PARTS * WIDTH].to_vec()
    };
    ((0..seqs.len()).map(of_seq).collect(), count)
}

fn token(seq: usize, position: usize) -> f32 {
    ((seq * 31 + position * 7) % 13) as f32
}

/// Returns the results of positions of one sequence, computed from the first token on.
fn expected(seq: usize, positions: Range<usize>) -> Vec<f32> {
    let mut state = vec![0.0f32; PARTS * WIDTH];
    let mut results = Vec::new();
    for position in 0..positions.end {
        for (i, x) in state.iter_mut().enumerate() {
            *x = *x * 0.5 + token(seq, position) + i as f32;
        }
        if position >= positions.start {
            results.extend_from_slice(&state);
        }
    }
    results
}

proptest! {
    #[test]
    fn chunks_give_the_states_of_one_token_after_another(
        chunks in prop::collection::vec(1usize..9, 1..6),
        dtype in prop::sample::select(vec![KvDtype::F32, KvDtype::Bf16, KvDtype::Int8]),
    ) {
        let mut kv = cache(40, dtype);
        let tables: [Vec<u32>; 2] = [(1..14).collect(), (20..33).rev().collect()];
        let mut start = 0;
        for chunk in chunks {
            let end = start + chunk;
            let seqs: Vec<Part<'_>> = tables.iter().map(|table| (start..end, &table[..])).collect();
            let (results, _) = step(&mut kv, &seqs, token);
            for (seq, results) in results.iter().enumerate() {
                prop_assert_eq!(results, &expected(seq, start..end));
            }
            start = end;
        }
    }
}

/// A guess whose token is another one than the text's.
fn wrong(seq: usize, position: usize) -> f32 {
    token(seq, position) + 40.0
}

proptest! {
    /// Each step computes the tokens that are not in the state, and guesses after them of which the
    /// first are right. The states of right tokens are those without guesses.
    #[test]
    fn a_state_keeps_no_guess(
        steps in prop::collection::vec((1usize..7, 0u32..7, 0usize..7), 1..6),
        dtype in prop::sample::select(vec![KvDtype::F32, KvDtype::Bf16]),
    ) {
        let mut kv = cache(40, dtype);
        let tables: [Vec<u32>; 2] = [(1..20).collect(), (20..39).rev().collect()];
        let mut start = 0;
        for (num_kept, num_guesses, num_right) in steps {
            let kept_end = start + num_kept;
            let right_end = kept_end + num_right.min(num_guesses as usize);
            // The second sequence has one guess fewer.
            let num_guesses = [num_guesses, num_guesses.saturating_sub(1)];
            let seqs: Vec<Part<'_>> = (0..2)
                .map(|seq| (start..kept_end + num_guesses[seq] as usize, &tables[seq][..]))
                .collect();
            let tokens = |seq: usize, position: usize| match position < right_end {
                true => token(seq, position),
                false => wrong(seq, position),
            };
            let (results, _) = step_with_guesses(&mut kv, &seqs, &num_guesses, tokens);
            for (seq, results) in results.iter().enumerate() {
                let right = start..right_end.min(seqs[seq].0.end);
                let results = &results[..right.len() * PARTS * WIDTH];
                prop_assert_eq!(results, &expected(seq, right)[..]);
            }
            start = kept_end;
        }
    }
}

#[test]
fn guesses_alone_read_the_state_and_write_none() {
    let mut kv = cache(8, KvDtype::F32);
    step(&mut kv, &[(0..6, &[1, 2])], token);
    for (start, table) in [(6, [1, 2, 3]), (4, [1, 5, 6])] {
        let len = 9 - start;
        step_with_guesses(&mut kv, &[(start..9, &table)], &[len as u32], wrong);
        let (results, _) = step_with_guesses(&mut kv, &[(start..9, &table)], &[len as u32], token);
        assert_eq!(results[0], expected(0, start..9));
    }
    let (results, _) = step_with_guesses(&mut kv, &[(0..3, &[7])], &[3], token);
    assert_eq!(results[0], expected(0, 0..3));
}

#[test]
fn full_blocks_are_snapshots() {
    let mut kv = cache(8, KvDtype::F32);
    step(&mut kv, &[(0..10, &[1, 2, 3])], token);
    for (place, table) in [(1, [1, 5, 6]), (2, [0, 2, 7])] {
        let start = place * BLOCK_SIZE;
        let (results, _) = step(&mut kv, &[(start..10, &table)], token);
        assert_eq!(results[0], expected(0, start..10));
    }
}

/// A hit on blocks that two others fill in the same step, in an order that does not matter.
#[test]
fn a_hit_within_a_step_waits_for_its_state() {
    let same = |_: usize, position: usize| token(0, position);
    let mut kv = cache(8, KvDtype::Bf16);
    let seqs: [Part<'_>; 3] = [(8..9, &[0, 2, 3]), (4..10, &[1, 2, 4]), (0..5, &[1, 5])];
    let (results, _) = step(&mut kv, &seqs, same);
    for (results, (positions, _)) in results.iter().zip(seqs) {
        assert_eq!(*results, expected(0, positions));
    }
}

/// Blocks that several sequences have by mistake are written by one after the other. Under a race,
/// parts of a state would be those of different sequences.
#[test]
fn sequences_with_one_and_the_same_block_do_not_race() {
    let mut kv = cache(8, KvDtype::F32);
    let same = |_: usize, position: usize| token(0, position);
    let seqs: Vec<Part<'_>> = (0..16).map(|_| (0..8, &[1, 2][..])).collect();
    for _ in 0..50 {
        let (results, _) = step(&mut kv, &seqs, same);
        assert!(results.iter().all(|results| *results == expected(0, 0..8)));
    }
}

#[test]
#[should_panic(expected = "rows of several sequences")]
fn sequences_never_share_rows() {
    let mut kv = cache(8, KvDtype::F32);
    let (tokens, mut results) = ([0.0; 8], vec![0.0; 8 * PARTS * WIDTH]);
    let results = SharedMut::new(&mut results);
    let decay = Decay { tokens: &tokens, results, num_tokens: AtomicUsize::new(0) };
    let meta = AttentionMetadata {
        query_start_loc: vec![0, 5, 2, 7],
        seq_lens: vec![5; 3],
        block_tables: vec![vec![1, 2], vec![3, 4], vec![5, 6]],
        ..AttentionMetadata::default()
    };
    advance_states(kv.layer_mut(0), &meta, usize::MAX, &decay);
}

#[test]
fn a_token_costs_the_same_after_any_context() {
    let mut kv = cache(300, KvDtype::F32);
    let table: Vec<u32> = (1..300).collect();
    for context in [0, 10, 100, 1_000] {
        let (_, count) = step(&mut kv, &[(context..context + 1, &table)], token);
        assert_eq!(count, PARTS);
    }
}
