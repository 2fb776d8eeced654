//! The contents of a model's KV cache: groups of layers, and the size of their blocks.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{chunked, sliding, state};

/// The contents of one model's KV cache. All groups take their blocks from one pool of equal
/// blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvSpec {
    /// Number of tokens that a block holds.
    pub block_size: usize,
    /// The groups. Each has block tables of its own.
    pub groups: Vec<KvGroup>,
}

/// Layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGroup {
    /// The tokens that the layers read.
    pub kind: KvKind,
    /// Indices of the layers. The place of a layer in this list is its place in a block.
    pub layers: Vec<usize>,
    /// Bytes of a block, in all of the layers together.
    pub block_bytes: u64,
}

/// The tokens that a layer reads, and therefore the blocks that a request keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvKind {
    /// All tokens so far: their keys and values, or their latents in latent attention.
    Full,
    /// The last tokens.
    Sliding {
        /// Number of tokens that a token reads, including itself. At least 1.
        window: usize,
    },
    /// The tokens of the chunk that the token is in. Chunks begin at multiples of their size.
    ChunkedLocal {
        /// Number of tokens in a chunk. At least 1.
        chunk: usize,
    },
    /// A state that each token changes: a state-space model's, or the window of a convolution. A
    /// block has the state after the last of its tokens that are computed.
    State,
}

impl KvKind {
    /// Returns the number of tokens, from the first one, that no token from `position` on reads.
    #[must_use]
    pub fn num_unread(self, position: usize) -> usize {
        match self {
            Self::Full => 0,
            Self::Sliding { window } => sliding::num_unread(position, window),
            Self::ChunkedLocal { chunk } => chunked::num_unread(position, chunk),
            Self::State => state::num_unread(position),
        }
    }

    /// Returns the largest number of earlier tokens that a token reads. `None`: all of them.
    #[must_use]
    pub fn num_read_max(self) -> Option<usize> {
        match self {
            Self::Full => None,
            Self::Sliding { window: tokens } | Self::ChunkedLocal { chunk: tokens } => {
                Some(tokens.saturating_sub(1))
            }
            Self::State => Some(1),
        }
    }

    /// Returns whether a token writes only to its own place in a block, so that the tokens before
    /// it keep theirs. A state is written over by each token.
    #[must_use]
    pub fn keeps_tokens_apart(self) -> bool {
        self != Self::State
    }

    /// Returns the first block that a request reads after `num_blocks` full blocks.
    pub(super) fn first_block(self, num_blocks: usize, block_size: usize) -> usize {
        self.num_unread(num_blocks * block_size) / block_size
    }
}

impl KvSpec {
    /// Returns the spec of a model whose layers all read all tokens so far.
    #[must_use]
    pub fn full(num_layers: usize, block_size: usize, block_bytes: u64) -> Self {
        let layers = (0..num_layers).collect();
        Self { block_size, groups: vec![KvGroup { kind: KvKind::Full, layers, block_bytes }] }
    }

    /// Returns the spec of a model with these layers, whose blocks have `layer_bytes` in each
    /// layer.
    ///
    /// A group has layers of one kind. All groups have equally many layers, but some may have
    /// fewer: a block has room for the largest group. As in vLLM, that is the number of layers of
    /// the rarest kind. If the most frequent kind has less than half as many layers more, its
    /// number is taken, because that leaves less room unused. The layers of one kind are dealt to
    /// its groups in turn.
    #[must_use]
    pub fn of_layers(kinds: &[KvKind], block_size: usize, layer_bytes: u64) -> Self {
        let mut by_kind: IndexMap<KvKind, Vec<usize>> = IndexMap::new();
        for (layer, &kind) in kinds.iter().enumerate() {
            by_kind.entry(kind).or_default().push(layer);
        }
        let counts = || by_kind.values().map(Vec::len);
        let (fewest, most) = (counts().min().unwrap_or(1), counts().max().unwrap_or(1));
        let group_size = if 2 * most < 3 * fewest { most } else { fewest };
        let block_bytes = group_size as u64 * layer_bytes;
        let groups = by_kind.into_iter().flat_map(|(kind, layers)| {
            let num_groups = layers.len().div_ceil(group_size);
            (0..num_groups).map(move |group| {
                let layers = layers.iter().skip(group).step_by(num_groups).copied().collect();
                KvGroup { kind, layers, block_bytes }
            })
        });
        Self { block_size, groups: groups.collect() }
    }

    /// Returns the number of tokens that have room in so many blocks, including the null block, if
    /// every group keeps all of them.
    #[must_use]
    pub fn num_tokens(&self, num_blocks: usize) -> usize {
        num_blocks.saturating_sub(1) / self.groups.len().max(1) * self.block_size
    }

    /// Returns the bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.block_bytes).max().unwrap_or_default()
    }

    /// Returns the number of layers that a block has room for.
    #[must_use]
    pub fn layers_per_block(&self) -> usize {
        self.groups.iter().map(|group| group.layers.len()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: KvKind = KvKind::Full;
    const SLIDING: KvKind = KvKind::Sliding { window: 32 };

    fn layers(runs: &[(usize, KvKind)]) -> Vec<KvKind> {
        runs.iter().flat_map(|&(count, kind)| vec![kind; count]).collect()
    }

    /// Checks the groups of layers that come in these runs. The layers of a group are counted
    /// from 1, as in vLLM's tests.
    fn check(runs: &[(usize, KvKind)], expected: &[(KvKind, &[usize])]) {
        let spec = KvSpec::of_layers(&layers(runs), 16, 10);
        let counted_from_1 = |layers: &[usize]| layers.iter().map(|layer| layer + 1).collect();
        let groups = spec.groups.iter().map(|group| (group.kind, counted_from_1(&group.layers)));
        let expected = expected.iter().map(|(kind, layers)| (*kind, layers.to_vec()));
        assert_eq!(Vec::<(_, Vec<usize>)>::from_iter(groups), Vec::from_iter(expected));
        assert_eq!(spec.block_bytes(), spec.layers_per_block() as u64 * 10);
    }

    #[test]
    fn layers_of_one_kind_are_one_group() {
        check(&[(3, FULL)], &[(FULL, &[1, 2, 3])]);
        check(&[(2, SLIDING)], &[(SLIDING, &[1, 2])]);
        assert_eq!(KvSpec::of_layers(&[FULL; 4], 16, 10), KvSpec::full(4, 16, 40));
        let none = KvSpec::of_layers(&[], 16, 10);
        assert_eq!((none.layers_per_block(), none.num_tokens(0)), (0, 0));
        assert_eq!(KvSpec::of_layers(&[FULL, SLIDING], 16, 10).num_tokens(12), 80);
    }

    /// vLLM's `test_get_kv_cache_configs`: two full and four sliding layers, three and seven, six
    /// and five.
    #[test]
    fn groups_are_as_large_as_the_rarest_kind() {
        check(
            &[(2, FULL), (4, SLIDING)],
            &[(FULL, &[1, 2]), (SLIDING, &[3, 5]), (SLIDING, &[4, 6])],
        );
        check(
            &[(3, FULL), (7, SLIDING)],
            &[(FULL, &[1, 2, 3]), (SLIDING, &[4, 7, 10]), (SLIDING, &[5, 8]), (SLIDING, &[6, 9])],
        );
        check(
            &[(6, FULL), (5, SLIDING)],
            &[(FULL, &[1, 2, 3, 4, 5, 6]), (SLIDING, &[7, 8, 9, 10, 11])],
        );
    }

    /// The pattern of Gemma 3: five sliding layers, then a full one.
    #[test]
    fn kinds_that_alternate_are_told_apart() {
        check(
            &[(5, SLIDING), (1, FULL), (5, SLIDING), (1, FULL)],
            &[
                (SLIDING, &[1, 7]),
                (SLIDING, &[2, 8]),
                (SLIDING, &[3, 9]),
                (SLIDING, &[4, 10]),
                (SLIDING, &[5, 11]),
                (FULL, &[6, 12]),
            ],
        );
    }

    #[test]
    fn windows_of_other_sizes_are_other_kinds() {
        let (narrow, local) = (KvKind::Sliding { window: 8 }, KvKind::ChunkedLocal { chunk: 32 });
        check(
            &[(1, SLIDING), (1, narrow), (1, local)],
            &[(SLIDING, &[1]), (narrow, &[2]), (local, &[3])],
        );
    }

    /// vLLM's groups of a model with mamba layers: as many layers as those of attention.
    #[test]
    fn layers_with_a_state_are_groups_of_their_own() {
        let state = KvKind::State;
        check(
            &[(2, state), (1, FULL), (2, state), (1, FULL)],
            &[(state, &[1, 4]), (state, &[2, 5]), (FULL, &[3, 6])],
        );
        check(&[(3, state)], &[(state, &[1, 2, 3])]);
    }

    #[test]
    fn a_kind_names_the_tokens_that_are_read() {
        let local = KvKind::ChunkedLocal { chunk: 8 };
        assert_eq!([FULL, SLIDING, local].map(|kind| kind.num_unread(40)), [0, 9, 40]);
        assert_eq!([FULL, SLIDING, local].map(|kind| kind.num_unread(31)), [0, 0, 24]);
        let most = [FULL, SLIDING, local].map(KvKind::num_read_max);
        assert_eq!(most, [None, Some(31), Some(7)]);
        assert_eq!([FULL, SLIDING, local].map(|kind| kind.first_block(10, 4)), [0, 2, 10]);
        let state = KvKind::State;
        assert_eq!([0, 1, 40].map(|position| state.num_unread(position)), [0, 0, 39]);
        assert_eq!((state.num_read_max(), state.first_block(10, 4)), (Some(1), 9));
    }
}
