//! The order of the sequences of a step. A prefix hit may be on a block that another sequence fills
//! in the same step, and its state must be there first.
//!
//! Threads may never write one block at once, whatever the tables of a step say. So sequences that
//! use a block which one of them writes never run together. Of sound tables, that is a prefix hit.
//! Of tables that give one block to two sequences by mistake, the results are meaningless, but no
//! memory is written by two threads. On a GPU two writes of one block need no order. Only a reader
//! waits for its writer there.

use super::Span;
use crate::paged_attention::AttentionMetadata;

/// The use of a block by a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    block: u32,
    /// The first position of the sequence in this step. A sequence that fills a block begins before
    /// one that reads it as a hit.
    start: usize,
    seq: usize,
    is_write: bool,
}

/// The pairs of uses of one block that must not be in one wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflicts {
    /// A write and any other use.
    Writes,
    /// A write and a read of a block other than block 0, which belongs to no sequence.
    #[cfg(feature = "gpu")]
    Reads,
}

impl Conflicts {
    fn have(self, one: &Use, other: &Use) -> bool {
        let is_of_one = one.seq == other.seq;
        match self {
            Self::Writes => !is_of_one && (one.is_write || other.is_write),
            #[cfg(feature = "gpu")]
            Self::Reads => !is_of_one && one.block != 0 && one.is_write != other.is_write,
        }
    }
}

/// Returns the sequences in *waves*: those of one wave have no `conflicts`. A sequence comes after
/// all sequences with an earlier position with which it has one. `None`: all sequences are one
/// wave, as in almost every step.
pub(super) fn waves(
    meta: &AttentionMetadata,
    block_size: usize,
    conflicts: Conflicts,
) -> Option<Vec<Vec<usize>>> {
    let mut pairs = pairs(&uses(meta, block_size), conflicts);
    if pairs.is_empty() {
        return None;
    }
    // All pairs that a sequence is the later one of come together, after those that it waits for.
    pairs.sort_unstable_by_key(|&[_, later]| later);
    let mut wave_of = vec![0; meta.num_seqs()];
    for [(_, earlier), (_, later)] in pairs {
        wave_of[later] = wave_of[later].max(wave_of[earlier] + 1);
    }
    let last = *wave_of.iter().max()?;
    let of_wave = |wave: usize| (0..wave_of.len()).filter(|seq| wave_of[*seq] == wave).collect();
    Some((0..=last).map(of_wave).collect())
}

/// Returns the uses of blocks in a step, sorted by blocks.
fn uses(meta: &AttentionMetadata, block_size: usize) -> Vec<Use> {
    let mut uses = Vec::with_capacity(2 * meta.num_seqs());
    for (seq, table) in meta.block_tables.iter().enumerate() {
        let Span { positions, kept_end, .. } = Span::of(meta, seq);
        if positions.is_empty() {
            continue;
        }
        let (start, first) = (positions.start, positions.start / block_size);
        // A sequence that begins within a block reads the state that it writes over.
        let is_all_guessed = start == kept_end;
        if start > 0 && (start.is_multiple_of(block_size) || is_all_guessed) {
            let block = table[(start - 1) / block_size];
            uses.push(Use { block, start, seq, is_write: false });
        }
        let num_blocks = if is_all_guessed { first } else { kept_end.div_ceil(block_size) };
        let written = &table[first..num_blocks];
        uses.extend(written.iter().map(|&block| Use { block, start, seq, is_write: true }));
    }
    uses.sort_unstable();
    uses
}

/// A sequence after the first position that it computes, so that pairs are in the order of waves.
type Place = (usize, usize);

/// Returns the pairs of sequences that may not run together. The one that comes first is first.
fn pairs(uses: &[Use], conflicts: Conflicts) -> Vec<[Place; 2]> {
    let mut pairs = Vec::new();
    for of_block in uses.chunk_by(|a, b| a.block == b.block) {
        for (index, later) in of_block.iter().enumerate() {
            let earlier = of_block[..index].iter();
            let conflicting = earlier.filter(|earlier| conflicts.have(earlier, later));
            pairs.extend(conflicting.map(|it| [(it.start, it.seq), (later.start, later.seq)]));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Returns a batch of sequences: positions and table of each. Blocks have four tokens.
    fn batch(seqs: &[(Range<u32>, &[u32])]) -> AttentionMetadata {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for (positions, table) in seqs {
            meta.positions.extend(positions.clone());
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push(positions.end);
            meta.block_tables.push(table.to_vec());
        }
        meta
    }

    fn waves(meta: &AttentionMetadata, block_size: usize) -> Option<Vec<Vec<usize>>> {
        super::waves(meta, block_size, Conflicts::Writes)
    }

    /// A reader comes after its writer, and two writers of one block run together.
    #[test]
    #[cfg(feature = "gpu")]
    fn readers_alone_wait_on_a_gpu() {
        let waves = |seqs: &[(Range<u32>, &[u32])]| super::waves(&batch(seqs), 4, Conflicts::Reads);
        let hit = waves(&[(8..9, &[0, 2, 3]), (4..9, &[1, 2, 4]), (0..5, &[1, 5]), (2..3, &[7])]);
        assert_eq!(hit, Some(vec![vec![2, 3], vec![1], vec![0]]));
        // Sequences that fill up a recorded step all write block 0.
        assert_eq!(waves(&[(0..1, &[0]), (0..1, &[0]), (5..6, &[3, 2])]), None);
        assert_eq!(waves(&[(4..5, &[0, 0]), (3..4, &[0])]), None);
    }

    #[test]
    fn sequences_apart_are_one_wave() {
        let meta = batch(&[(0..6, &[1, 2]), (4..5, &[3, 4]), (9..10, &[0, 5, 6])]);
        assert_eq!(waves(&meta, 4), None);
        assert_eq!(waves(&AttentionMetadata::default(), 4), None);
    }

    #[test]
    fn a_reader_comes_after_its_writer() {
        let meta = batch(&[(8..9, &[0, 2, 3]), (4..9, &[1, 2, 4]), (0..5, &[1, 5]), (2..3, &[7])]);
        assert_eq!(waves(&meta, 4), Some(vec![vec![2, 3], vec![1], vec![0]]));
        let later = batch(&[(4..9, &[1, 2, 4]), (4..5, &[1, 3])]);
        assert_eq!(waves(&later, 4), None, "an earlier step wrote the block");
    }

    #[test]
    fn sequences_with_one_and_the_same_block_never_run_together() {
        let check = |seqs: &[(Range<u32>, &[u32])], expected: [usize; 2]| {
            let expected = expected.map(|seq| vec![seq]).to_vec();
            assert_eq!(waves(&batch(seqs), 4), Some(expected), "{seqs:?}");
        };
        // Both write block 2, at the same place or at another one.
        check(&[(4..6, &[1, 2]), (5..6, &[3, 2])], [0, 1]);
        check(&[(9..10, &[1, 3, 2]), (0..1, &[2])], [1, 0]);
        // One reads block 2 and the other writes it, at a place that is no hit.
        check(&[(8..9, &[1, 2, 3]), (0..1, &[2])], [1, 0]);
        check(&[(4..5, &[2, 3]), (8..9, &[1, 4, 2])], [0, 1]);
        let all_one: Vec<(Range<u32>, &[u32])> = (0..4).map(|_| (0..9, &[1, 1, 1][..])).collect();
        assert_eq!(waves(&batch(&all_one), 4), Some((0..4).map(|seq| vec![seq]).collect()));
    }

    /// Guesses write to no block.
    #[test]
    fn nobody_waits_for_guesses() {
        let with_guesses = |num_guesses: &[u32]| {
            let num_guesses = num_guesses.to_vec();
            let seqs: [(Range<u32>, &[u32]); 2] = [(3..6, &[1, 2]), (4..6, &[3, 2])];
            waves(&AttentionMetadata { num_guesses, ..batch(&seqs) }, 4)
        };
        assert_eq!(with_guesses(&[]), Some(vec![vec![0], vec![1]]));
        assert_eq!(with_guesses(&[2, 0]), None);
        assert_eq!(with_guesses(&[0, 2]), None);
    }

    #[test]
    fn a_block_that_is_only_read_keeps_nobody_waiting() {
        let meta = batch(&[(4..5, &[1, 2]), (4..5, &[1, 3]), (4..5, &[1, 4])]);
        assert_eq!(waves(&meta, 4), None);
        assert_eq!(waves(&batch(&[(3..3, &[1]), (0..2, &[1])]), 4), None, "no token, no block");
    }
}
