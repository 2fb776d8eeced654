//! Models: from a Hugging Face model folder to logits.
//!
//! [`load_model`] reads a folder and gives back a [`CausalLm`]. A family is a small file of data
//! (`llama`, `mistral`, …) over one decoder (`decoder`) made of shared `layers`; `config` turns
//! `config.json` into a checked [`ModelConfig`]. Nothing here knows actors, requests or devices:
//! the arithmetic is the kernels crate's.

mod activations;
pub mod config;
mod decoder;
mod error;
mod family;
mod inventory;
mod layers;
mod llama;
mod load;
mod mistral;
mod qwen2;
mod qwen3;

use burn::tensor::Tensor;
use playhouse_kernels::{AttentionMetadata, KvCache, KvCacheShape, WeightDtype};

pub use activations::{ActivationQuantization, QuantizedWeights};
pub use config::{ConfigError, GenerationConfig, ModelConfig};
pub use error::ModelError;
pub use layers::rotary::{InverseFrequencies, inverse_frequencies};
pub use load::{Dtype, LoadFormat, LoadOptions, LoadProgress, load_model};

/// The tokens of one step, of all sequences in it, laid end to end.
#[derive(Debug, Clone, Copy)]
pub struct ForwardBatch<'a> {
    /// Token ids below `vocab_size`: `[num_tokens]`.
    pub token_ids: &'a [u32],
    /// Which sequence and position each token belongs to, and where keys and values lie.
    pub meta: &'a AttentionMetadata,
}

/// A decoder that predicts the next token.
pub trait CausalLm: Send + Sync {
    /// The model's shape and limits.
    fn config(&self) -> &ModelConfig;

    /// The type in which weights are kept; the KV cache's own unless it is told otherwise.
    fn dtype(&self) -> WeightDtype;

    /// What its quantized weights are, if it has any.
    fn quantized_weights(&self) -> Option<&QuantizedWeights> {
        None
    }

    /// Bytes of weights that are pages of a file: the system counts them as memory that could be
    /// had, and yet each step reads them.
    fn mapped_bytes(&self) -> u64 {
        0
    }

    /// The shape of a KV cache of `num_blocks` blocks of `block_size` tokens for this model.
    fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape;

    /// Runs the decoder over `batch`, writing keys and values of its tokens into `kv`, and returns
    /// the hidden state of every token after the final norm: `[num_tokens, hidden_size]`, f32.
    ///
    /// A row's bytes depend on its sequence alone: not on the rest of the batch, on how the
    /// sequence was cut into chunks, or on which blocks hold it; unless it was loaded to use a
    /// GPU's tensor cores.
    ///
    /// # Panics
    /// If `batch` disagrees with itself or with the shape of `kv`, or holds a token id outside the
    /// vocabulary or a position outside `max_model_len`: what reaches here has been validated.
    fn forward(&self, batch: &ForwardBatch<'_>, kv: &mut KvCache) -> Tensor<2>;

    /// Logits of some rows of `hidden` `[num_tokens, hidden_size]`: `[rows, vocab_size]`, f32.
    ///
    /// # Panics
    /// If a row is outside `hidden`.
    fn logits(&self, hidden: Tensor<2>, rows: &[u32]) -> Tensor<2>;
}
