//! What all layers of a step share.

use playhouse_kernels::{AttentionMetadata, KvCache};

/// One step as the layers see it.
#[derive(Debug)]
pub struct Step<'a> {
    /// Which sequence each token belongs to, and where keys and values lie.
    pub meta: &'a AttentionMetadata,
    /// The cache that the layers read, and write the step's tokens into.
    pub kv: &'a mut KvCache,
}

/// Where each token of a step stands, for layers that turn vectors by position.
#[derive(Debug, Clone, Copy)]
pub struct Positions<'a> {
    in_sequence: &'a [u32],
}

impl<'a> Positions<'a> {
    /// The positions of text, whose only axis is the place in the sequence.
    #[must_use]
    pub fn of_text(meta: &'a AttentionMetadata) -> Self {
        Self { in_sequence: &meta.positions }
    }

    /// The place of each token in its sequence: `[num_tokens]`.
    #[must_use]
    pub fn in_sequence(self) -> &'a [u32] {
        self.in_sequence
    }
}
