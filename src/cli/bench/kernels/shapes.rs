//! The sizes of a model that its operations depend on.

use std::path::Path;

use crate::model::config::{FeedForward, LayerConfig, Mixer};
use crate::model::{ConfigError, ModelConfig};

/// The sizes of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shapes {
    pub(super) vocab: usize,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: usize,
    pub(super) head_dim: usize,
    /// Whether the heads of queries and keys are normalized.
    pub(super) has_qk_norm: bool,
}

impl Shapes {
    /// Qwen3 0.6B, a model on which other engines are measured as well.
    pub(super) const STANDARD: Self = Self {
        vocab: 151_936,
        hidden: 1024,
        intermediate: 3072,
        num_heads: 16,
        num_kv_heads: 8,
        head_dim: 128,
        has_qk_norm: true,
    };

    /// Returns the shapes of the model in a folder.
    pub(super) fn of(folder: &Path) -> Result<Self, ConfigError> {
        let config = ModelConfig::from_dir(folder, None)?;
        let LayerConfig { mixer, feed_forward } = &config.layers[0];
        let (Mixer::Attention(attention), FeedForward::GatedMlp(mlp)) = (mixer, feed_forward);
        Ok(Self {
            vocab: config.vocab_size,
            hidden: config.hidden_size,
            intermediate: mlp.intermediate_size,
            num_heads: attention.num_heads,
            num_kv_heads: attention.num_kv_heads,
            head_dim: attention.head_dim,
            has_qk_norm: config.family.names.attention.q_norm.is_some(),
        })
    }

    pub(super) fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    pub(super) fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}
