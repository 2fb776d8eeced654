//! Blocks of attention and an MLP that several layers share: HF `Zamba2AttentionDecoderLayer`.

use super::{LayerConfig, Mixer};

/// Blocks that layers with two mixers take in turns. Each use of a block adds products of low rank
/// to its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBlocks {
    /// Number of blocks.
    pub count: usize,
    /// The width between both matrices of a product of low rank.
    pub rank: usize,
    /// Whether uses have products for queries, keys and values, beside those for the MLP.
    pub has_attention_adapters: bool,
}

impl SharedBlocks {
    /// Returns whether a layer uses a block.
    fn is_use(layer: &LayerConfig) -> bool {
        matches!(layer.mixer, Mixer::Parallel(_))
    }

    /// Returns the number of uses before that of layer `index`, and the layer that has the tensors
    /// of its block. That is the first one that uses it.
    pub(crate) fn use_of(&self, layers: &[LayerConfig], index: usize) -> (usize, usize) {
        let num_before = layers[..index].iter().filter(|layer| Self::is_use(layer)).count();
        let users = layers.iter().enumerate().filter(|(_, layer)| Self::is_use(layer));
        let holder = users.map(|(user, _)| user).nth(num_before % self.count);
        (num_before, holder.unwrap_or(index))
    }
}
