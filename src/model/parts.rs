//! The parts of a model: a backbone, and the heads that read its hidden states.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{KvCacheShape, WeightDtype};

use super::config::{POSITIONS_MAX, SIZE_MAX};
use super::{ModelError, Positions, QuantizedWeights, Step};

/// From tokens to hidden states.
///
/// A row's bytes depend on its sequence alone: not on the rest of the batch, on how the sequence was
/// cut into chunks, or on which blocks hold it; unless the weights were loaded to use a GPU's tensor
/// cores.
pub trait Backbone: Send + Sync {
    /// The hidden states that tokens begin with: `[num_tokens, hidden_size]`, f32.
    ///
    /// # Panics
    /// If a token id is outside the vocabulary: the input has been validated.
    fn embed(&self, token_ids: &[u32]) -> Tensor<2>;

    /// Runs the layers over `hidden`, which is [`Backbone::embed`]'s, and writes keys and values of
    /// the step's tokens into its cache. Returns the hidden state of every token after the final
    /// norm: `[num_tokens, hidden_size]`, f32.
    ///
    /// # Panics
    /// If `hidden`, `positions` and `step` disagree with each other or with the shape of the cache,
    /// or a position is outside `max_model_len`: the input has been validated.
    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2>;

    /// Bytes of weights that are pages of a file: the system counts them as free memory, and yet
    /// each step reads them.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// The head that predicts the next token.
pub trait LmHead: Send + Sync {
    /// Logits of some rows of `hidden` `[num_tokens, hidden_size]`: `[rows, vocab_size]`, f32.
    ///
    /// # Panics
    /// If a row is outside `hidden`.
    fn logits(&self, hidden: Tensor<2>, rows: &[u32]) -> Tensor<2>;

    /// As [`Backbone::mapped_bytes`].
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// A model: a backbone with its head, and what the engine needs to know about them.
#[derive(Clone)]
pub struct Model {
    /// The entry of `architectures` that the model is served as.
    pub architecture: String,
    /// Logits of a token. Every token id is smaller.
    pub vocab_size: usize,
    /// The longest context served, in tokens.
    pub max_model_len: usize,
    /// Tokens that end a sequence. The tokenizer and `generation_config.json` may name more.
    pub eos_token_ids: Vec<u32>,
    /// What the backbone keeps of a token in the KV cache.
    pub kv_layers: KvLayers,
    /// The type in which weights are kept, and by default keys and values.
    pub dtype: WeightDtype,
    /// How weights are quantized, if any are.
    pub quantized_weights: Option<QuantizedWeights>,
    /// From tokens to hidden states.
    pub backbone: Arc<dyn Backbone>,
    /// From hidden states to logits.
    pub lm_head: Arc<dyn LmHead>,
}

/// What a backbone keeps of a token in the KV cache: in each layer the keys and the values of some
/// heads. The engine makes its `KvSpec` of this. All layers are one group, whose tokens read all
/// earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayers {
    /// Layers of the cache, which [`Step::kv`] numbers from 0.
    pub num_layers: usize,
    /// Heads of keys, and of values, in each layer.
    pub num_kv_heads: usize,
    /// Elements of a head; even.
    pub head_dim: usize,
}

impl Model {
    /// Bytes of weights that are pages of a file, as [`Backbone::mapped_bytes`].
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.backbone.mapped_bytes() + self.lm_head.mapped_bytes()
    }

    /// The shape of a KV cache of `num_blocks` blocks of `block_size` tokens for this model.
    #[must_use]
    pub fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        let KvLayers { num_layers, num_kv_heads, head_dim } = self.kv_layers;
        KvCacheShape { num_layers, num_blocks, block_size, num_kv_heads, head_dim }
    }

    /// Rejects facts that nothing could be served with: a family is not trusted to tell good ones.
    ///
    /// # Errors
    /// [`ModelError::Fact`] names the first fact, its value and what is accepted.
    pub(super) fn check_facts(&self) -> Result<(), ModelError> {
        let KvLayers { num_layers, num_kv_heads, head_dim } = self.kv_layers;
        let facts = [
            ("vocab_size", self.vocab_size, SIZE_MAX),
            ("max_model_len", self.max_model_len, POSITIONS_MAX),
            ("kv_layers.num_layers", num_layers, SIZE_MAX),
            ("kv_layers.num_kv_heads", num_kv_heads, SIZE_MAX),
            ("kv_layers.head_dim", head_dim, SIZE_MAX),
        ];
        let refused = |fact, value, accepted| {
            Err(ModelError::Fact { architecture: self.architecture.clone(), fact, value, accepted })
        };
        match facts.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            Some((fact, value, most)) => refused(fact, value, format!("1 to {most}")),
            None if head_dim % 2 == 1 => {
                refused("kv_layers.head_dim", head_dim, "an even number".to_owned())
            }
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("architecture", &self.architecture)
            .field("vocab_size", &self.vocab_size)
            .field("max_model_len", &self.max_model_len)
            .field("kv_layers", &self.kv_layers)
            .finish_non_exhaustive()
    }
}
