//! The state that all layers of a step share.

use playhouse_kernels::{AttentionMetadata, KvCache};

/// One step as the layers see it.
#[derive(Debug)]
pub struct Step<'a> {
    /// The sequence of each token, and the places of its keys and values.
    pub meta: &'a AttentionMetadata,
    /// The cache, which the layers read, and into which they write the step's tokens.
    pub kv: &'a mut KvCache,
}

/// The position of each token of a step, for layers that rotate vectors by position.
#[derive(Debug, Clone, Copy)]
pub struct Positions<'a> {
    in_sequence: &'a [u32],
}

impl<'a> Positions<'a> {
    /// Returns the positions of text, which have one axis: the place in the sequence.
    #[must_use]
    pub fn of_text(meta: &'a AttentionMetadata) -> Self {
        Self { in_sequence: &meta.positions }
    }

    /// Returns the place of each token in its sequence: `[num_tokens]`.
    #[must_use]
    pub fn in_sequence(self) -> &'a [u32] {
        self.in_sequence
    }
}
