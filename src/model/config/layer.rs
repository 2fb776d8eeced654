//! The layers of a model as data: a mixer of tokens, and a feed-forward part.

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
    /// The part that mixes each token with the tokens before it.
    pub mixer: Mixer,
    /// The part that computes each token alone.
    pub feed_forward: FeedForward,
}

/// The part of a layer that mixes each token with the tokens before it.
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
    /// Key and value heads; a divisor of the number of query heads.
    pub num_kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// The number of tokens that a token attends to, including itself. `None`: all tokens before
    /// it.
    pub sliding_window: Option<u32>,
    /// Its rotary embedding.
    pub rope: RopeParameters,
    /// Whether the q, k and v projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub o_bias: bool,
}

/// The part of a layer that computes each token alone.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    /// Two projections, one of which gates the other, and a projection back.
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
    /// Returns the number of elements of a token's queries.
    pub(crate) fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Returns the number of elements of a token's keys, which is also that of its values.
    pub(crate) fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}

/// Reads the layers of the model, first layer first.
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
    // All layers of a kind share a rotary embedding. A kind without layers needs none.
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
