//! The sizes of a model that its operations depend on.

use std::path::Path;

use crate::model::config::{FeedForward, Mixer};
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
        // The operations that are measured are those of a dense layer with attention. The sizes
        // that the model lacks are those of the default.
        let attention = config.layers.iter().find_map(|layer| layer.mixer.attention());
        let intermediate = config.layers.iter().find_map(|layer| match &layer.feed_forward {
            FeedForward::Mlp(mlp) => Some(mlp.intermediate_size),
            FeedForward::Moe(moe) => Some(moe.intermediate_size),
            FeedForward::None => None,
        });
        let of_model = Self {
            vocab: config.vocab_size,
            hidden: config.hidden_size,
            intermediate: intermediate.unwrap_or(Self::STANDARD.intermediate),
            ..Self::STANDARD
        };
        // The heads of latent attention are those of its latents, expanded.
        let latent = config.layers.iter().find_map(|layer| match &layer.mixer {
            Mixer::Latent(latent) => Some(latent),
            _ => None,
        });
        if let Some(latent) = latent {
            let (num_heads, num_kv_heads) = (latent.num_heads, latent.num_heads);
            let head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
            return Ok(Self { num_heads, num_kv_heads, head_dim, has_qk_norm: false, ..of_model });
        }
        let Some(attention) = attention else { return Ok(of_model) };
        Ok(Self {
            num_heads: attention.num_heads,
            num_kv_heads: attention.num_kv_heads,
            head_dim: attention.head_dim,
            has_qk_norm: attention.head_norm.is_some(),
            ..of_model
        })
    }

    pub(super) fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    pub(super) fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}
