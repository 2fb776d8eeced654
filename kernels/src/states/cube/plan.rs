//! The sequences of a step as words. The host decides their order from lengths and tables alone.

use super::super::{Span, order};
use crate::KvCacheShape;
use crate::paged_attention::AttentionMetadata;

/// Words that describe a sequence: the row of its first token, the number of its tokens, the
/// position of the first, and the place of its blocks.
pub(super) const ITEM_WORDS: usize = 4;

/// The inputs of a plan beside the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StatesOf {
    /// The group of layers, which has block tables of its own.
    group: usize,
    block_size: usize,
    num_blocks: usize,
}

/// The sequences of a step.
pub(crate) struct StatePlan {
    /// All items, then their blocks: the block of the state before the first token, or 0, then
    /// those that the tokens lie in. A recorded step has one token a sequence, and always as many
    /// words.
    pub(crate) words: Vec<u32>,
    /// The number of sequences of each launch, in the order of the items.
    pub(crate) waves: Vec<usize>,
}

impl StatesOf {
    pub(crate) fn new(shape: &KvCacheShape, group: usize) -> Self {
        Self { group, block_size: shape.block_size, num_blocks: shape.num_blocks }
    }

    /// Returns the group of layers.
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Returns the plan of a batch.
    ///
    /// # Panics
    /// If a block is outside the arena, or a table has too few. If a token is a guess: the start
    /// gives a model with states none on a GPU.
    pub(crate) fn plan(&self, meta: &AttentionMetadata) -> StatePlan {
        let has_guesses = meta.num_guesses.iter().any(|num_guesses| *num_guesses > 0);
        assert!(!has_guesses, "states: guesses on a GPU");
        let waves = order::waves(meta, self.block_size, order::Conflicts::Reads);
        let waves = waves.unwrap_or_else(|| vec![(0..meta.num_seqs()).collect()]);
        let seqs: Vec<usize> = waves.iter().flatten().copied().collect();
        let mut words = Vec::with_capacity(seqs.len() * (ITEM_WORDS + 2));
        let mut blocks = Vec::with_capacity(2 * seqs.len());
        for &seq in &seqs {
            let Span { positions, first_row, .. } = Span::of(meta, seq);
            let at = seqs.len() * ITEM_WORDS + blocks.len();
            words.extend([first_row, positions.len(), positions.start, at].map(|x| x as u32));
            let table = &meta.block_tables[seq];
            let before = positions.start.checked_sub(1).map(|at| table[at / self.block_size]);
            let first = positions.start / self.block_size;
            blocks.push(before.unwrap_or(0));
            blocks.extend_from_slice(&table[first..positions.end.div_ceil(self.block_size)]);
        }
        for block in &blocks {
            let most = self.num_blocks;
            assert!((*block as usize) < most, "states: block {block} of {most}");
        }
        words.append(&mut blocks);
        StatePlan { words, waves: waves.iter().map(Vec::len).collect() }
    }
}
