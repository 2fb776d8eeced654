//! The layers of a model as data: what mixes the tokens in each, and what follows.

mod heads;
mod windows;

use super::file::Fields;
use super::{ConfigError, RopeParameters, rope};
use crate::model::family::{Bias, Family};
pub(super) use windows::LAYER_TYPES;
pub(crate) use windows::WindowRule;

/// One decoder layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// Mixes each token with those before it.
    pub mixer: Mixer,
    /// Computes each token alone.
    pub feed_forward: FeedForward,
}

/// How a layer mixes each token with those before it.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(AttentionConfig),
}

/// Grouped-query attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// How many tokens a token attends to, itself included; all before it where absent.
    pub sliding_window: Option<u32>,
    /// Its rotary embedding.
    pub rope: RopeParameters,
    /// Whether the q, k and v projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub o_bias: bool,
}

/// How a layer computes each token alone.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    /// Two projections, one of which gates the other, and one back.
    GatedMlp(GatedMlpConfig),
}

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedMlpConfig {
    /// Outputs of the gate, and of the projection that it gates.
    pub intermediate_size: usize,
    /// Whether the projections have biases.
    pub bias: bool,
}

impl AttentionConfig {
    /// Elements of a token's queries.
    pub(crate) fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Elements of a token's keys, and of its values.
    pub(crate) fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}

/// The layers of the model, first layer first.
pub(super) fn read(
    config: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let (num_heads, num_kv_heads, head_dim) = heads::read(config, family)?;
    let windows = windows::read(config, family.windows)?;
    let (qkv_bias, o_bias) = (bias(config, family.qkv_bias)?, bias(config, family.o_bias)?);
    let feed_forward = FeedForward::GatedMlp(GatedMlpConfig {
        intermediate_size: config.required_size("intermediate_size")?,
        bias: bias(config, family.mlp_bias)?,
    });
    // Layers of one kind have one rotary embedding, and a kind without layers needs none.
    let mut ropes: [Option<RopeParameters>; 2] = [None, None];
    let layer = |sliding_window: Option<u32>| {
        let kind = usize::from(sliding_window.is_some());
        let rope = match &mut ropes[kind] {
            Some(rope) => rope,
            none => none.insert(rope::read(
                config,
                LAYER_TYPES[kind],
                head_dim,
                max_position_embeddings,
            )?),
        };
        let rope = rope.clone();
        let attention = AttentionConfig {
            num_heads,
            num_kv_heads,
            head_dim,
            sliding_window,
            rope,
            qkv_bias,
            o_bias,
        };
        let feed_forward = feed_forward.clone();
        Ok(LayerConfig { mixer: Mixer::Attention(attention), feed_forward })
    };
    windows.into_iter().map(layer).collect()
}

fn bias(config: &Fields, rule: Bias) -> Result<bool, ConfigError> {
    match rule {
        Bias::Never => Ok(false),
        Bias::Always => Ok(true),
        Bias::IfSet(field) => Ok(config.flag(field)?.unwrap_or(false)),
    }
}

#[cfg(test)]
mod tests;
