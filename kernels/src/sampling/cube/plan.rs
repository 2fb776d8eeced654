//! The input of the kernels: the parameters of the rows.

use super::super::SamplingRow;

/// Number of words of a row's parameters.
pub(super) const ROW_WORDS: usize = 10;

/// Number of words of an edit.
pub(super) const EDIT_WORDS: usize = 5;

/// The value that stands for no mask.
pub(super) const NONE: u32 = u32::MAX;

/// Parameters, masks and edits of all rows.
#[derive(Debug)]
pub(super) struct Plan {
    /// [`ROW_WORDS`] a row: whether it is greedy, temperature, top_k (0: all), `ln(min_p)` (or a
    /// very low number), `1 - top_p` (or -1), seed and position in two words each, and the
    /// grammar's mask.
    pub(super) rows: Vec<u32>,
    /// One bit a token, in rows of whole words.
    pub(super) masks: Vec<u32>,
    /// For each row the mask that is applied before all edits, or [`NONE`].
    pub(super) allowed: Vec<u32>,
    /// [`EDIT_WORDS`] an edit: place among the logits, bias (or a very low number), repetition
    /// penalty, and the numbers to subtract for frequency and for presence.
    pub(super) edits: Vec<u32>,
    /// Whether any row changes its logits.
    pub(super) changes_logits: bool,
}

impl Plan {
    pub(super) fn new(rows: &[SamplingRow<'_>], vocab: usize) -> Self {
        let mut plan = Self {
            rows: Vec::with_capacity(rows.len() * ROW_WORDS),
            masks: Vec::new(),
            allowed: Vec::with_capacity(rows.len()),
            edits: Vec::new(),
            changes_logits: rows.iter().any(SamplingRow::changes_logits),
        };
        for (i, row) in rows.iter().enumerate() {
            let allowed = row.allowed_token_ids.map(|ids| plan.mask_of(ids, vocab));
            plan.allowed.push(allowed.unwrap_or(NONE));
            let grammar = row.token_bitmask.map(|words| plan.mask(words, vocab));
            plan.push_row(row, vocab, grammar.unwrap_or(NONE));
            plan.push_edits(row, i * vocab, vocab);
        }
        plan
    }

    fn push_row(&mut self, row: &SamplingRow<'_>, vocab: usize, grammar: u32) {
        let top_k = if (row.top_k as usize) < vocab { row.top_k } else { 0 };
        let min_p = if row.min_p > 0.0 { row.min_p.ln() } else { f32::MIN };
        // The tail is below 1, so that the likeliest token stays even if top_p is very small.
        let tail = if row.top_p < 1.0 { (1.0 - row.top_p).min(1.0 - f32::EPSILON) } else { -1.0 };
        self.rows.extend([
            u32::from(row.is_greedy()),
            row.temperature.to_bits(),
            top_k,
            min_p.to_bits(),
            tail.to_bits(),
            row.seed as u32,
            (row.seed >> 32) as u32,
            row.position as u32,
            (row.position >> 32) as u32,
            grammar,
        ]);
    }

    /// Adds a mask for `vocab` tokens and returns the place where it begins.
    fn mask(&mut self, words: &[u32], vocab: usize) -> u32 {
        let (at, len) = (self.masks.len(), vocab.div_ceil(32));
        self.masks.extend(words.iter().take(len));
        self.masks.resize(at + len, 0);
        at as u32
    }

    fn mask_of(&mut self, ids: &[u32], vocab: usize) -> u32 {
        let at = self.mask(&[], vocab);
        for &id in ids.iter().filter(|id| (**id as usize) < vocab) {
            self.masks[at as usize + id as usize / 32] |= 1 << (id % 32);
        }
        at
    }

    fn push_edits(&mut self, row: &SamplingRow<'_>, first: usize, vocab: usize) {
        for (id, edit) in super::edit::edits(row, vocab) {
            self.edits.extend([
                (first + id as usize) as u32,
                edit.bias.to_bits(),
                edit.repetition.to_bits(),
                edit.frequency.to_bits(),
                edit.presence.to_bits(),
            ]);
        }
    }
}
