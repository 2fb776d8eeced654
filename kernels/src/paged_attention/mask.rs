//! The keys that a query sees.

/// The keys that a query at position `i` sees, among those with `j <= i`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CausalMask {
    /// All of them.
    #[default]
    Full,
    /// A sliding window of this many keys: `i - window < j` (HF's semantics).
    Sliding(u32),
    /// Chunked local attention (Llama 4): the keys in the query's own chunk of this many positions,
    /// `j / chunk == i / chunk`.
    Chunked(u32),
}

impl CausalMask {
    /// Returns the first key that a query at `position` sees. It sees all keys from there to its
    /// own.
    pub(super) fn first_visible(self, position: usize) -> usize {
        match self {
            Self::Full => 0,
            Self::Sliding(window) => (position + 1).saturating_sub(window as usize),
            Self::Chunked(chunk) => position - position % chunk as usize,
        }
    }

    /// Returns whether a query sees its own key, as any query must.
    pub(super) fn shows_own_key(self) -> bool {
        !matches!(self, Self::Sliding(0) | Self::Chunked(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_visible_key_follows_the_mask() {
        let firsts = |mask: CausalMask| [0, 3, 4, 7, 8].map(|i| mask.first_visible(i));
        assert_eq!(firsts(CausalMask::Full), [0; 5]);
        assert_eq!(firsts(CausalMask::Sliding(3)), [0, 1, 2, 5, 6]);
        assert_eq!(firsts(CausalMask::Sliding(u32::MAX)), [0; 5]);
        assert_eq!(firsts(CausalMask::Chunked(4)), [0, 0, 4, 4, 8]);
        assert_eq!(firsts(CausalMask::Chunked(1)), [0, 3, 4, 7, 8]);
    }
}
