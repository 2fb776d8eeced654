//! Recurrences over a state that the KV cache keeps: convolutions' windows, state-space models,
//! linear attention.
//!
//! A block of the cache has the state after the last of its tokens that are computed. A step over
//! the tokens `n..m` of a sequence reads the state of the block of token `n − 1`. If `n` is 0, it
//! begins with zeros. It writes the state of each block at the block's end, and that of the last
//! block after token `m − 1`. The cost does not depend on the tokens before `n`.
//!
//! The last tokens of a sequence may be guesses. They are computed from the state that the token
//! before them left, and no block keeps what they change: a wrong token cannot be taken out of a
//! state. Once a guess is known to be right, a later step computes it again.
//!
//! A state is cut in *parts* that are computed apart, on several threads or by units of a GPU. A
//! part takes one token after another, so its bytes do not depend on the cuts of a prompt.

#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
pub(crate) mod fixture;
mod order;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::kv_cache::KvLayer;
use crate::kv_cache::cpu::StatePages;
use crate::paged_attention::AttentionMetadata;
use crate::threads::for_each_piece;
use crate::workspace::Scratch;

/// A function that takes a state from each token to the next.
pub(crate) trait Recurrence: Sync {
    /// Returns the number of parts.
    fn num_parts(&self) -> usize;

    /// Returns the numbers of a part within the state of a layer. Parts do not overlap.
    fn part(&self, part: usize) -> Range<usize>;

    /// Takes the state of a part over the tokens `rows` of the batch, in their order. Writes the
    /// results that belong to the part and these rows. No other call has both.
    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>);
}

/// Runs a recurrence over the tokens of `meta`, whose states are in `layer`. `work` is about the
/// number of multiply-adds.
///
/// # Panics
/// If `layer` is not on the CPU or has no room for the state. If a table of `meta` has too few
/// blocks, or the rows of its sequences overlap.
pub(crate) fn advance_states(
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    work: usize,
    recurrence: &impl Recurrence,
) {
    let kv = layer.cpu_mut();
    let block_size = kv.block_size();
    let pages = kv.states();
    let parts = recurrence.num_parts();
    assert!(meta.query_start_loc.is_sorted(), "rows of several sequences");
    let run = |seq: usize, part: usize| {
        let span = Span::of(meta, seq);
        // SAFETY: no other sequence of a wave uses a block that this one writes, or writes one that
        // this one reads: `waves` makes sure of it. Of its blocks, this piece has one part.
        unsafe { advance(&pages, &meta.block_tables[seq], block_size, &span, recurrence, part) };
    };
    match order::waves(meta, block_size, order::Conflicts::Writes) {
        None => {
            let pieces = meta.num_seqs() * parts;
            for_each_piece(pieces, work, |piece| run(piece / parts, piece % parts));
        }
        Some(waves) => {
            for seqs in waves {
                let pieces = seqs.len() * parts;
                for_each_piece(pieces, work, |piece| run(seqs[piece / parts], piece % parts));
            }
        }
    }
}

/// The tokens of one sequence in a step.
#[derive(Debug, Clone)]
struct Span {
    /// Their positions.
    positions: Range<usize>,
    /// The position after the last one whose state is kept. Guesses follow.
    kept_end: usize,
    /// The row of the first one in the batch.
    first_row: usize,
}

impl Span {
    fn of(meta: &AttentionMetadata, seq: usize) -> Self {
        let rows = meta.tokens_of(seq);
        let end = meta.seq_lens[seq] as usize;
        let (start, kept_end) = (end - rows.len(), end - rows.len().min(meta.guesses_of(seq)));
        Self { positions: start..end, kept_end, first_row: rows.start }
    }
}

/// Takes one part of one sequence's state over its tokens, block by block.
///
/// # Safety
/// Nothing else may use this part of the blocks that the kept tokens lie in. Nothing else may write
/// this part of the block before the tokens.
unsafe fn advance(
    pages: &StatePages<'_>,
    table: &[u32],
    block_size: usize,
    span: &Span,
    recurrence: &impl Recurrence,
    part: usize,
) {
    let range = recurrence.part(part);
    let Range { start, end } = span.positions;
    let mut last = start.checked_sub(1).map(|before| table[before / block_size]);
    let mut position = start;
    let row = |position: usize| span.first_row + position - start;
    while position < span.kept_end {
        let block = table[position / block_size];
        let stop = span.kept_end.min((position / block_size + 1) * block_size);
        // SAFETY: by the contract; the references of an earlier turn are gone.
        let state = unsafe { pages.part_mut(block, &range) };
        match last {
            None => state.fill(0.0),
            Some(last) if last == block => {}
            // SAFETY: by the contract, and it is another block than that of `state`.
            Some(last) => state.copy_from_slice(unsafe { pages.part(last, &range) }),
        }
        recurrence.advance(part, state, row(position)..row(stop));
        last = Some(block);
        position = stop;
    }
    if position == end {
        return;
    }
    let mut state = Scratch::<f32>::new(range.len());
    match last {
        None => state.fill(0.0),
        // SAFETY: by the contract; the references of the loop are gone.
        Some(last) => state.copy_from_slice(unsafe { pages.part(last, &range) }),
    }
    recurrence.advance(part, &mut state, row(position)..row(end));
}
