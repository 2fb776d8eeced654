//! The hashes of one request's full blocks, computed when they are first asked for.

use std::{ops::Range, sync::Arc};

use super::{BlockHash, extra_keys, hash_block, none_hash};
use crate::logic::{
    planted::{Bug, planted},
    request::{ids::TokenId, lora::LoraRequest, media::MultimodalFeature},
};

/// How blocks are named: the number of tokens that one hash covers, and the parent of every first
/// block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNaming {
    block_size: usize,
    none_hash: BlockHash,
}

/// The content of a request that its hashes depend on.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The prompt.
    pub prompt: &'a [TokenId],
    /// The tokens after the prompt.
    pub output: &'a [TokenId],
    /// Images and sounds, sorted by offset.
    pub features: &'a [MultimodalFeature],
    /// Keeps the blocks apart from those of other salts.
    pub salt: Option<&'a Arc<str>>,
    /// The adapter.
    pub lora: Option<&'a Arc<LoraRequest>>,
}

/// The hashes of a request's full blocks, from the first one on.
#[derive(Debug, Clone, Default)]
pub struct BlockChain(Arc<Vec<BlockHash>>);

impl BlockNaming {
    /// Returns the naming of an engine with this seed. `block_size` must be at least 1.
    #[must_use]
    pub fn new(block_size: usize, hash_seed: Option<&str>) -> Self {
        Self { block_size, none_hash: none_hash(hash_seed) }
    }
}

impl BlockChain {
    /// Returns the hashes of all full blocks of the first `num_tokens` tokens, and perhaps of more
    /// blocks. Unknown hashes are computed.
    pub fn hashes(
        &mut self,
        num_tokens: usize,
        content: &Content<'_>,
        naming: &BlockNaming,
    ) -> &Arc<Vec<BlockHash>> {
        let num_full = num_tokens / naming.block_size;
        while self.0.len() < num_full {
            let hash = content.hash(self.0.len(), self.0.last(), naming);
            // This copies the hashes only while a plan that carries them still exists.
            Arc::make_mut(&mut self.0).push(hash);
        }
        &self.0
    }

    /// Returns the hashes that were asked for so far. They include those of all blocks that the
    /// request has looked up or registered.
    #[must_use]
    pub fn known(&self) -> &Arc<Vec<BlockHash>> {
        &self.0
    }

    /// Returns the hashes of some full blocks, for registration.
    pub fn full_blocks(
        &mut self,
        blocks: Range<usize>,
        content: &Content<'_>,
        naming: &BlockNaming,
    ) -> Vec<BlockHash> {
        self.hashes(blocks.end * naming.block_size, content, naming)[blocks].to_vec()
    }
}

impl Content<'_> {
    fn hash(&self, index: usize, parent: Option<&BlockHash>, naming: &BlockNaming) -> BlockHash {
        let (start, end) = (index * naming.block_size, (index + 1) * naming.block_size);
        let parent = parent.unwrap_or(&naming.none_hash);
        let salt = self.salt.filter(|_| !planted(Bug::IgnoreSalt));
        let lora = self.lora.filter(|_| !planted(Bug::IgnoreAdapter));
        let keys = extra_keys(start, naming.block_size, lora, self.features, salt);
        match self.prompt.get(start..end) {
            Some(tokens) => hash_block(parent, tokens, &keys),
            None => hash_block(parent, &self.tokens(start..end), &keys),
        }
    }

    fn tokens(&self, range: Range<usize>) -> Vec<TokenId> {
        let all = self.prompt.iter().chain(self.output);
        all.skip(range.start).take(range.len()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_over_the_end_of_the_prompt_has_tokens_of_both() {
        let naming = BlockNaming::new(4, None);
        let whole = Content {
            prompt: &[1, 2, 3, 4, 5, 6, 7, 8],
            output: &[],
            features: &[],
            salt: None,
            lora: None,
        };
        let parts = Content { prompt: &[1, 2, 3, 4, 5, 6], output: &[7, 8, 9], ..whole };
        let mut chain = BlockChain::default();
        let expected = chain.hashes(8, &whole, &naming).clone();
        let mut chain = BlockChain::default();
        assert_eq!(chain.hashes(7, &parts, &naming).len(), 1, "the second block is not full");
        assert_eq!(*chain.hashes(9, &parts, &naming), expected);
        assert_eq!(chain.full_blocks(1..2, &parts, &naming), expected[1..]);
        assert_eq!(chain.full_blocks(2..2, &parts, &naming), []);
    }
}
