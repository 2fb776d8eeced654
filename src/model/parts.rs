//! The parts of a model: a backbone, and the heads that read its hidden states.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{KvCacheShape, WeightDtype};

use super::config::Mixer;
use super::{ModelConfig, Positions, QuantizedWeights, Step};

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

/// A model: a backbone with its head.
#[derive(Clone)]
pub struct Model {
    /// The model's shape and limits.
    pub config: ModelConfig,
    /// The type in which weights are kept, and by default keys and values.
    pub dtype: WeightDtype,
    /// How weights are quantized, if any are.
    pub quantized_weights: Option<QuantizedWeights>,
    /// From tokens to hidden states.
    pub backbone: Arc<dyn Backbone>,
    /// From hidden states to logits.
    pub lm_head: Arc<dyn LmHead>,
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
        // The layers of the supported families have the same heads; a config has a layer at least.
        let Mixer::Attention(attention) = &self.config.layers[0].mixer;
        KvCacheShape {
            num_layers: self.config.layers.len(),
            num_blocks,
            block_size,
            num_kv_heads: attention.num_kv_heads,
            head_dim: attention.head_dim,
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("config", &self.config).finish_non_exhaustive()
    }
}
