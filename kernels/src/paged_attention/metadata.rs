//! The description of one ragged batch.

use std::ops::Range;

use super::AttentionMask;
use crate::{KernelError, KvCacheShape};

/// The tokens of each sequence, and the places of each sequence's keys and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttentionMetadata {
    /// `[num_seqs + 1]`: tokens `query_start_loc[s] .. query_start_loc[s + 1]` belong to `s`.
    pub query_start_loc: Vec<u32>,
    /// `[num_seqs]`: tokens in the cache after this step.
    pub seq_lens: Vec<u32>,
    /// `[num_seqs]`: the blocks of each sequence in order; at least enough for its length.
    pub block_tables: Vec<Vec<u32>>,
    /// `[num_tokens]`: `block * block_size + offset` of each token.
    pub slot_mapping: Vec<u32>,
    /// `[num_tokens]`: position of each token in its sequence.
    pub positions: Vec<u32>,
    /// `[num_tokens]`: one behind the last key that each token sees under a causal mask. The tokens
    /// of an image see all of it (Gemma 3). Numbers never decrease within a sequence. Empty if each
    /// token sees the keys up to its own.
    pub visible_ends: Vec<u32>,
    /// `[num_seqs]`: how many of the last tokens of each sequence are guesses. A state does not
    /// keep what they change. Empty if there are none.
    pub num_guesses: Vec<u32>,
}

const WHAT: &str = "attention metadata";

impl AttentionMetadata {
    /// Returns the number of sequences.
    #[must_use]
    pub fn num_seqs(&self) -> usize {
        self.seq_lens.len()
    }

    /// Returns the number of query tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.positions.len()
    }

    /// Returns the range of query tokens of sequence `seq`.
    pub(crate) fn tokens_of(&self, seq: usize) -> Range<usize> {
        self.query_start_loc[seq] as usize..self.query_start_loc[seq + 1] as usize
    }

    /// Returns how many of the tokens of sequence `seq` are guesses.
    pub(crate) fn guesses_of(&self, seq: usize) -> usize {
        self.num_guesses.get(seq).map_or(0, |num_guesses| *num_guesses as usize)
    }

    /// Returns the last key that token `t` of sequence `seq` sees.
    pub(super) fn last_visible(&self, seq: usize, t: usize, mask: AttentionMask) -> usize {
        let position = self.positions[t] as usize;
        let last = mask.last_visible(position, self.seq_lens[seq] as usize);
        match self.visible_ends.get(t) {
            Some(end) if mask.is_causal() => *end as usize - 1,
            _ => last,
        }
    }

    /// Checks that the fields agree with each other and lie within the arena.
    ///
    /// # Errors
    /// The first field that fails, with the values that would be accepted.
    pub fn validate(&self, shape: &KvCacheShape) -> Result<(), KernelError> {
        let (seqs, tokens) = (self.num_seqs(), self.num_tokens());
        KernelError::require_len(WHAT, "query_start_loc", self.query_start_loc.len(), seqs + 1)?;
        KernelError::require_len(WHAT, "block_tables", self.block_tables.len(), seqs)?;
        KernelError::require_len(WHAT, "slot_mapping", self.slot_mapping.len(), tokens)?;
        if !self.visible_ends.is_empty() {
            KernelError::require_len(WHAT, "visible_ends", self.visible_ends.len(), tokens)?;
        }
        if !self.num_guesses.is_empty() {
            KernelError::require_len(WHAT, "num_guesses", self.num_guesses.len(), seqs)?;
        }
        self.validate_starts(tokens)?;
        for seq in 0..seqs {
            self.validate_sequence(seq, shape)?;
        }
        Ok(())
    }

    /// Checks that `query_start_loc` runs from 0 to the number of tokens and never decreases.
    fn validate_starts(&self, tokens: usize) -> Result<(), KernelError> {
        let starts = &self.query_start_loc;
        let (first, last) = (starts[0], starts[starts.len() - 1]);
        KernelError::require(first == 0, WHAT, "query_start_loc[0]", first.into(), "0")?;
        let ends = last as usize == tokens;
        KernelError::require(
            ends,
            WHAT,
            "query_start_loc's last",
            last.into(),
            tokens.to_string(),
        )?;
        for (i, pair) in starts.windows(2).enumerate() {
            let field = format!("query_start_loc[{}]", i + 1);
            let accepted = format!("at least {}", pair[0]);
            KernelError::require(pair[0] <= pair[1], WHAT, field, pair[1].into(), accepted)?;
        }
        Ok(())
    }

    fn validate_sequence(&self, seq: usize, shape: &KvCacheShape) -> Result<(), KernelError> {
        let (len, table) = (self.seq_lens[seq] as usize, &self.block_tables[seq]);
        let blocks = len.div_ceil(shape.block_size);
        let field = || format!("block_tables[{seq}]");
        let accepted = format!("at least {blocks} blocks for {len} tokens");
        KernelError::require(table.len() >= blocks, WHAT, field(), table.len() as u64, accepted)?;
        for block in &table[..blocks] {
            let inside = (*block as usize) < shape.num_blocks;
            let accepted = format!("below {}", shape.num_blocks);
            KernelError::require(inside, WHAT, field(), u64::from(*block), accepted)?;
        }
        let tokens = self.tokens_of(seq);
        let fits = tokens.len() <= len;
        let field = format!("seq_lens[{seq}]");
        let accepted = format!("at least its {} query tokens", tokens.len());
        KernelError::require(fits, WHAT, field, len as u64, accepted)?;
        let (num_guesses, field) = (self.guesses_of(seq), format!("num_guesses[{seq}]"));
        let accepted = format!("at most its {} query tokens", tokens.len());
        let fits = num_guesses <= tokens.len();
        KernelError::require(fits, WHAT, field, num_guesses as u64, accepted)?;
        for (i, t) in tokens.clone().enumerate() {
            let (position, expected) = (self.positions[t] as usize, len - tokens.len() + i);
            let field = format!("positions[{t}]");
            let ok = position == expected;
            KernelError::require(ok, WHAT, field, position as u64, expected.to_string())?;
            let slot = table[position / shape.block_size] as usize * shape.block_size
                + position % shape.block_size;
            let (got, field) = (u64::from(self.slot_mapping[t]), format!("slot_mapping[{t}]"));
            KernelError::require(got == slot as u64, WHAT, field, got, slot.to_string())?;
        }
        self.validate_ends(tokens, len)
    }

    /// Checks that each token sees its own key, no key behind the sequence, and no fewer keys than
    /// the token before it.
    fn validate_ends(&self, tokens: Range<usize>, len: usize) -> Result<(), KernelError> {
        let mut least = 0;
        for t in tokens.filter(|_| !self.visible_ends.is_empty()) {
            least = least.max(self.positions[t] as usize + 1);
            let end = self.visible_ends[t] as usize;
            let (ok, accepted) = ((least..=len).contains(&end), format!("{least} to {len}"));
            let field = format!("visible_ends[{t}]");
            KernelError::require(ok, WHAT, field, end as u64, accepted)?;
            least = end;
        }
        Ok(())
    }
}
