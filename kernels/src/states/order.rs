//! The order of the sequences of a step. A prefix hit may be on a block that another sequence fills
//! in the same step, and its state must be there first.

use super::Span;
use crate::paged_attention::AttentionMetadata;

/// Returns the sequences in *waves*: each reads only states that are in the cache already, or that
/// an earlier wave writes. `None`: all sequences are one wave, as in almost every step.
pub(super) fn waves(meta: &AttentionMetadata, block_size: usize) -> Option<Vec<Vec<usize>>> {
    let mut wave_of: Vec<usize> = Vec::new();
    // A wave for each turn in which a sequence had to wait for another one.
    for _ in 0..meta.num_seqs() {
        let mut has_moved = false;
        for (reader, writer) in pairs(meta, block_size) {
            if wave_of.is_empty() {
                wave_of.resize(meta.num_seqs(), 0);
            }
            if wave_of[reader] <= wave_of[writer] {
                wave_of[reader] = wave_of[writer] + 1;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
    let last = *wave_of.iter().max()?;
    let of_wave = |wave: usize| (0..wave_of.len()).filter(|seq| wave_of[*seq] == wave).collect();
    Some((0..=last).map(of_wave).collect())
}

/// Returns each sequence that begins with a state that another one writes in this step, and that
/// other one.
fn pairs(meta: &AttentionMetadata, block_size: usize) -> impl Iterator<Item = (usize, usize)> {
    let begins_a_block = move |seq: &usize| {
        let start = Span::of(meta, *seq).positions.start;
        start > 0 && start.is_multiple_of(block_size)
    };
    (0..meta.num_seqs()).filter(begins_a_block).flat_map(move |reader| {
        // Sequences that share a block have it at the same place.
        let place = Span::of(meta, reader).positions.start / block_size - 1;
        let block = meta.block_tables[reader][place];
        let writes = move |writer: &usize| {
            let positions = Span::of(meta, *writer).positions;
            let blocks = positions.start / block_size..positions.end.div_ceil(block_size);
            *writer != reader
                && blocks.contains(&place)
                && meta.block_tables[*writer][place] == block
        };
        (0..meta.num_seqs()).filter(writes).map(move |writer| (reader, writer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a batch of sequences: positions and table of each. Blocks have four tokens.
    fn batch(seqs: &[(std::ops::Range<u32>, &[u32])]) -> AttentionMetadata {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for (positions, table) in seqs {
            meta.positions.extend(positions.clone());
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push(positions.end);
            meta.block_tables.push(table.to_vec());
        }
        meta
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
}
