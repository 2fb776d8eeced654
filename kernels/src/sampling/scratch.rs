//! Buffers that outlive a call, so that a step allocates no memory per row.

/// Reusable memory of [`super::sample`]; one per thread that samples.
#[derive(Debug, Default)]
pub struct SamplingScratch {
    /// The unmodified row.
    pub(super) raw: Vec<f32>,
    /// Tokens left by truncation, as (logit, id).
    pub(super) kept: Vec<(f32, u32)>,
    /// Occurrences by token id; all zero between uses.
    pub(super) counts: Vec<u32>,
    /// The ids whose count is not zero.
    pub(super) counted: Vec<u32>,
}

impl SamplingScratch {
    /// Counts `token_ids` below `vocab`; pair with [`Self::clear_counts`].
    pub(super) fn count(&mut self, token_ids: &[u32], vocab: usize) {
        if self.counts.len() < vocab {
            self.counts.resize(vocab, 0);
        }
        for id in token_ids.iter().filter(|id| (**id as usize) < vocab) {
            let count = &mut self.counts[*id as usize];
            if *count == 0 {
                self.counted.push(*id);
            }
            *count += 1;
        }
    }

    /// Resets every count to zero.
    pub(super) fn clear_counts(&mut self) {
        for id in self.counted.drain(..) {
            self.counts[id as usize] = 0;
        }
    }
}
