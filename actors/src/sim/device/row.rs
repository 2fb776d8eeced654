//! A request's tokens and blocks in the simulator's executor.

use std::sync::Arc;

use crate::{
    logic::{
        kv_cache::BlockIds,
        request::{
            EngineRequest,
            ids::{BlockId, TokenId},
            outputs::{RowFailure, SampledToken},
        },
    },
    sim::{
        media::{are_cut, extend_with},
        memory::Life,
        model::{Digest, Sampler, empty_digest},
        rng::mix,
        vocabulary::VOCAB_SIZE,
    },
};

/// One request as the executor knows it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) request: Arc<EngineRequest>,
    /// The tokens, and while a step runs its guesses.
    pub(super) tokens: Vec<TokenId>,
    pub(super) num_known: usize,
    /// Number of tokens whose KV exists.
    pub(super) num_computed: usize,
    /// Digest `i` is that of the first `i` tokens.
    pub(super) digests: Vec<Digest>,
    /// The digests after the tokens that this executor computed for the request.
    pub(super) computed: Vec<Digest>,
    /// One for each group of layers.
    pub(super) tables: Vec<Vec<BlockId>>,
    /// Why its last token could not be drawn. Then the request cannot continue.
    pub(super) broken: Option<RowFailure>,
    pub(super) life: Life,
    /// Number of the execution that it began with.
    pub(super) began: u64,
}

impl Row {
    /// Returns whether a step that ends before the `end`-th token computes a part of an image.
    pub(super) fn is_cut(&self, end: usize) -> bool {
        are_cut(&self.request.mm_features, end)
    }

    pub(super) fn new(
        request: Arc<EngineRequest>,
        adapter: u64,
        num_groups: usize,
        life: Life,
        began: u64,
    ) -> Self {
        let digests = vec![empty_digest(request.cache_salt.as_deref(), adapter)];
        let tables = vec![Vec::new(); num_groups];
        let (tokens, computed) = (Vec::new(), Vec::new());
        let (num_known, num_computed) = (0, 0);
        Self {
            request,
            tokens,
            num_known,
            num_computed,
            digests,
            computed,
            tables,
            broken: None,
            life,
            began,
        }
    }

    pub(super) fn grow(&mut self, block_ids: &BlockIds) {
        for (group, table) in self.tables.iter_mut().enumerate() {
            table.extend_from_slice(block_ids.group(group));
        }
    }

    /// Returns the content that a group's layers have for the token at `position`.
    pub(super) fn content(&self, group: usize, position: usize) -> Digest {
        self.digests[position + 1].rotate_left(group as u32)
    }

    /// Guesses at most `num_places` tokens after the known ones. Most guesses are right: the
    /// request's own draws.
    pub(super) fn guess(&mut self, num_places: usize, luck: u64) {
        let num_guesses = (luck % (num_places as u64 + 1)) as usize;
        for index in 0..num_guesses {
            let luck = mix(luck ^ index as u64);
            let right =
                self.draw(self.tokens.len(), self.request.seed).map_or(0, |drawn| drawn.token_id);
            let wrong = (right + 1) % VOCAB_SIZE;
            self.push(&[if luck.is_multiple_of(4) { wrong } else { right }]);
        }
    }

    /// Returns the draw after the first `end` tokens. `None`: the request pools.
    pub(super) fn draw(&self, end: usize, seed: u64) -> Option<SampledToken> {
        let params = self.request.sampling()?;
        let sampler = Sampler { params, seed };
        let num_outputs = end.saturating_sub(self.request.num_prompt_tokens());
        let last = self.tokens[..end].last().copied().filter(|_| num_outputs > 0);
        Some(sampler.sample(self.digests[end], end, num_outputs, last))
    }

    /// Replaces the guesses by the drawn tokens.
    pub(super) fn take(&mut self, drawn: &[SampledToken]) {
        self.tokens.truncate(self.num_known);
        self.digests.truncate(self.num_known + 1);
        let drawn: Vec<_> = drawn.iter().map(|token| token.token_id).collect();
        self.push(&drawn);
        self.num_known = self.tokens.len();
        if !drawn.is_empty() {
            self.num_computed = self.num_known - 1;
        }
    }

    pub(super) fn push(&mut self, tokens: &[TokenId]) {
        for &token in tokens {
            let position = self.tokens.len();
            let features = &self.request.mm_features;
            let digest = extend_with(self.digests[position], token, position, features);
            self.digests.push(digest);
            self.tokens.push(token);
        }
    }
}
