//! The keys that a query sees.

/// The keys that a query at position `i` sees, in a sequence of `n` keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AttentionMask {
    /// Those up to its own: `j <= i`.
    #[default]
    Full,
    /// A sliding window of this many keys: `i - window < j <= i` (HF's semantics).
    Sliding(u32),
    /// Chunked local attention (Llama 4): the keys up to its own in its chunk of this many
    /// positions, `j / chunk == i / chunk`.
    Chunked(u32),
    /// The same with the chunk before its own (Rnj-1): `j / chunk + 1 >= i / chunk`.
    ChunkPairs(u32),
    /// All keys, also those after it: `j < n`. Only where a step has the whole sequence.
    Both,
    /// Keys on both sides that are nearer than this: `|i - j| < window`. Only where a step has the
    /// whole sequence.
    Around(u32),
}

impl AttentionMask {
    /// Returns the first key that a query at `position` sees.
    pub(crate) fn first_visible(self, position: usize) -> usize {
        match self {
            Self::Full | Self::Both => 0,
            Self::Sliding(window) | Self::Around(window) => {
                (position + 1).saturating_sub(window as usize)
            }
            Self::Chunked(chunk) => position - position % chunk as usize,
            Self::ChunkPairs(chunk) => {
                (position - position % chunk as usize).saturating_sub(chunk as usize)
            }
        }
    }

    /// Returns the last key that a query at `position` sees in a sequence of `len` keys. It sees
    /// all keys from the first to the last.
    pub(crate) fn last_visible(self, position: usize, len: usize) -> usize {
        match self {
            Self::Full | Self::Sliding(_) | Self::Chunked(_) | Self::ChunkPairs(_) => position,
            Self::Both => len - 1,
            Self::Around(window) => (position + window as usize).min(len) - 1,
        }
    }

    /// Returns whether a query sees no key after its own, unless the batch says so.
    pub(super) fn is_causal(self) -> bool {
        !matches!(self, Self::Both | Self::Around(_))
    }

    /// Returns whether a query sees its own key, as any query must.
    pub(super) fn shows_own_key(self) -> bool {
        !matches!(self, Self::Sliding(0) | Self::Chunked(0) | Self::ChunkPairs(0) | Self::Around(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_visible_key_follows_the_mask() {
        let firsts = |mask: AttentionMask| [0, 3, 4, 7, 8].map(|i| mask.first_visible(i));
        assert_eq!(firsts(AttentionMask::Full), [0; 5]);
        assert_eq!(firsts(AttentionMask::Sliding(3)), [0, 1, 2, 5, 6]);
        assert_eq!(firsts(AttentionMask::Sliding(u32::MAX)), [0; 5]);
        assert_eq!(firsts(AttentionMask::Chunked(4)), [0, 0, 4, 4, 8]);
        assert_eq!(firsts(AttentionMask::Chunked(1)), [0, 3, 4, 7, 8]);
        assert_eq!(firsts(AttentionMask::ChunkPairs(4)), [0, 0, 0, 0, 4]);
        assert_eq!(firsts(AttentionMask::ChunkPairs(1)), [0, 2, 3, 6, 7]);
        assert_eq!(firsts(AttentionMask::Both), [0; 5]);
        assert_eq!(firsts(AttentionMask::Around(3)), [0, 1, 2, 5, 6]);
    }

    #[test]
    fn the_last_visible_key_is_the_own_one_or_one_after_it() {
        let lasts = |mask: AttentionMask| [0, 3, 8].map(|i| mask.last_visible(i, 9));
        assert_eq!(lasts(AttentionMask::Full), [0, 3, 8]);
        assert_eq!(lasts(AttentionMask::Sliding(3)), [0, 3, 8]);
        assert_eq!(lasts(AttentionMask::Both), [8; 3]);
        assert_eq!(lasts(AttentionMask::Around(3)), [2, 5, 8]);
        assert_eq!(lasts(AttentionMask::Around(1)), [0, 3, 8]);
        assert_eq!(lasts(AttentionMask::Around(u32::MAX)), [8; 3]);
    }
}
