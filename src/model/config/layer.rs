//! The layers of a model as data: a mixer of tokens, and a feed-forward part.

mod activation;
mod heads;
mod kind;
mod latent;
mod low_rank;
mod mamba;
mod moe;
mod positions;
mod recurrent;
mod windows;

use std::sync::Arc;

use super::file::Fields;
use super::{ConfigError, RopeParameters, rope};
use crate::model::family::{AttentionNames, Bias, Family, HeadNormRule, LayerNorms, LayerRule};
pub use activation::ActivationName;
pub(crate) use kind::{MixerKind, kinds};
pub use latent::LatentConfig;
pub(crate) use low_rank::LowRankQueries;
pub use mamba::{Mamba2Config, Mamba2Multipliers, Mamba2Norm, MambaConfig, MambaNorms};
pub(crate) use mamba::{Mamba2Fields, MambaFields, hybrid, inner_size, mixers_alone};
pub use moe::{GateClamp, GroupScoring, MoeConfig, Scoring, SharedExpert};
pub(crate) use positions::{DisentangledConfig, DistanceBiasConfig, PositionProjection};
pub use recurrent::{
    DeltaNetConfig, DeltaNetModules, GriffinConfig, KimiDeltaConfig, LightningConfig,
    RecurrentConfig, ShortConvConfig,
};
pub(crate) use recurrent::{LightningNames, StateLayers};
pub(crate) use windows::WindowRule;
pub(super) use windows::{LAYER_TYPES, SLIDING};

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
    /// Softmax attention over cached latents, from which keys and values are expanded.
    Latent(LatentConfig),
    /// Mamba's selective scan.
    Mamba(MambaConfig),
    /// Mamba 2's state-space model.
    Mamba2(Mamba2Config),
    /// Both of the same hidden state, whose results are added: HF `FalconH1DecoderLayer`.
    Parallel(ParallelConfig),
    /// Linear attention or a convolution, whose state is in the KV cache.
    Recurrent(RecurrentConfig),
    /// Nothing: the layer has a feed-forward part alone.
    None,
}

/// Attention and a state-space model over the same hidden state.
#[derive(Debug, Clone, PartialEq)]
pub struct ParallelConfig {
    /// The attention.
    pub attention: AttentionConfig,
    /// The factors of its input and of its output.
    pub attention_multipliers: [f32; 2],
    /// The state-space model.
    pub mamba: Mamba2Config,
}

/// Grouped-query attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; a divisor of the number of query heads.
    pub num_kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Whether a token attends to no token after it. Otherwise the step has the whole sequence, and
    /// its keys and values are not kept.
    pub is_causal: bool,
    /// The number of tokens that a token attends to, including itself. Without causality, tokens of
    /// both sides at a distance below this number. `None`: all tokens.
    pub sliding_window: Option<u32>,
    /// The tokens of a chunk: a token attends to those of its own chunk. It excludes a window.
    pub chunk: Option<u32>,
    /// Whether a token also attends to the chunk before its own.
    pub sees_chunk_before: bool,
    /// Its rotary embedding. `None`: queries and keys do not depend on positions.
    pub rope: Option<RopeParameters>,
    /// Whether the q, k and v projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub o_bias: bool,
    /// The factor of scores.
    pub scale: f32,
    /// `c` of `c · tanh(score / c)`.
    pub soft_cap: Option<f32>,
    /// The norm of query and key heads.
    pub(crate) head_norm: Option<HeadNormRule>,
    /// Whether heads are normalised after their rotation.
    pub norms_after_rope: bool,
    /// Queries, keys and values are clamped to this and its negative.
    pub clip: Option<f32>,
    /// ALiBi's slope of each query head: `[num_heads]`. Without causality, the distance to a key
    /// counts on both sides.
    pub alibi: Option<Arc<[f32]>>,
    /// Whether the biases of ALiBi are rounded to bfloat16, and scaled with the products.
    pub rounds_alibi: bool,
    /// The biases of scores by the distance between query and key.
    pub(crate) distance_biases: Option<DistanceBiasConfig>,
    /// The terms of scores by contents and positions.
    pub(crate) disentangled: Option<DisentangledConfig>,
    /// The tensor of the layer that has the score of each query head's sink, `[num_heads]`.
    pub sinks: Option<&'static str>,
    /// The factor of queries, by position.
    pub temperature: Option<TemperatureConfig>,
    /// Whether the heads of values are normalised, without a weight.
    pub normalizes_values: bool,
    /// The earlier layer whose keys and values it reads. `None`: its own.
    pub kv_from: Option<usize>,
    /// Whether values are the keys before their norm and their rotation: HF
    /// `Gemma4TextAttention` with `attention_k_eq_v`.
    pub values_are_keys: bool,
    /// Elements of a value, if it is narrower than a head.
    pub value_dim: Option<usize>,
    /// The factor of values.
    pub value_scale: f32,
    /// The RMS norm of the results of all heads together, before the output projection.
    pub(crate) output_norm: Option<&'static str>,
    /// The number of heads in the KV cache, a multiple of `num_kv_heads`, and their width there, if
    /// layers differ. `None`: those of this layer.
    pub cached_heads: Option<(usize, usize)>,
    /// Whether layers have the elements of both halves of a query or key head side by side: those
    /// of a file whose converter does so to heads that do not rotate, too.
    pub(crate) joins_halves: bool,
    /// Whether a token never attends to those after it, also where tokens of an image do in other
    /// layers: HF `create_masks_for_vision_model` of Gemma 4.
    pub always_causal: bool,
    /// Whether a file has the elements of both halves of whole query and key heads side by side,
    /// although less than a head rotates. They are taken apart when the file is read.
    pub(crate) parts_halves: bool,
    /// The longest context in which an indexer chooses all tokens for each query, in a model that
    /// has one (Qwen sparse attention). Contexts are at most as long, so each query has all tokens.
    pub indexed_context: Option<usize>,
    /// The low rank of queries, if they have one.
    pub(crate) low_rank: Option<LowRankQueries>,
    /// Whether the output is multiplied by a gate of a projection. Its rows follow those of each
    /// query head in the module of queries, if they have no module of their own.
    pub has_gate: bool,
    /// The form of that gate.
    pub gate: GateForm,
}

/// The gate of an attention's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateForm {
    /// The sigmoid of a number for each element.
    Sigmoid,
    /// The softplus of a number for each element.
    Softplus,
    /// The softplus of a number for each head.
    SoftplusOfHeads,
    /// The sigmoid of a number for each head.
    SigmoidOfHeads,
}

/// Queries at position `p` are multiplied by `1 + scale · ln(1 + ⌊(p + addend) / floor⌋)`: HF
/// `Llama4TextAttention` (<https://arxiv.org/abs/2501.19399>).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TemperatureConfig {
    /// The divisor of positions.
    pub floor: f32,
    /// The factor of the logarithm.
    pub scale: f32,
    /// The number that is added to positions.
    pub addend: f32,
}

/// The part of a layer that computes each token alone.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    /// A projection to an inner width, an activation, and a projection back.
    Mlp(MlpConfig),
    /// A mixture of experts.
    Moe(MoeConfig),
    /// Nothing: the layer has a mixer alone.
    None,
}

/// `down(act(gate(x)) · up(x))`, or `down(act(up(x)))`.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpConfig {
    /// Outputs of the gate, and of the projection that it gates.
    pub intermediate_size: usize,
    /// Whether one inner projection gates the other.
    pub is_gated: bool,
    /// The activation, by its name in transformers.
    pub activation: ActivationName,
    /// Whether the projections to the inner width have biases.
    pub bias: bool,
    /// Whether the projection back has a bias.
    pub down_bias: bool,
    /// The share of the gate's outputs that are not used, if normally distributed. `None`: all are
    /// used.
    pub sparsity: Option<f64>,
    /// The RMS norm before the projection back.
    pub(crate) inner_norm: Option<&'static str>,
    /// The largest activated gate, and the largest magnitude of the value that it gates.
    pub limit: Option<f32>,
    /// The factor of the gate, before its activation.
    pub gate_multiplier: f32,
    /// The factor of the output.
    pub output_multiplier: f32,
}

impl AttentionConfig {
    /// Returns the number of elements of a token's queries.
    pub(crate) fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Returns the number of elements of a token's results: those of values for each query head.
    pub(crate) fn o_size(&self) -> usize {
        self.num_heads * self.value_dim.unwrap_or(self.head_dim)
    }

    /// Returns the number of elements of a token's gates.
    pub(crate) fn gate_size(&self) -> usize {
        match self.gate {
            GateForm::Sigmoid | GateForm::Softplus => self.o_size(),
            GateForm::SoftplusOfHeads | GateForm::SigmoidOfHeads => self.num_heads,
        }
    }

    /// Returns the elements of a head in the KV cache. It is even, so a head of an odd width ends
    /// with a zero there. In a model with heads of several widths, it is the widest.
    pub(crate) fn cached_head_dim(&self) -> usize {
        self.cached_heads.map_or(self.head_dim.next_multiple_of(2), |(_, width)| width)
    }

    /// Returns the heads of keys in the KV cache.
    pub(crate) fn num_cached_heads(&self) -> usize {
        self.cached_heads.map_or(self.num_kv_heads, |(heads, _)| heads)
    }
}

impl LayerConfig {
    /// Returns those of `norms` that belong to the parts that the layer has.
    pub(crate) fn norms(&self, norms: LayerNorms) -> LayerNorms {
        let (mixer, mlp) = (self.mixer != Mixer::None, self.feed_forward != FeedForward::None);
        LayerNorms {
            before_attention: norms.before_attention.filter(|_| mixer),
            after_attention: norms.after_attention.filter(|_| mixer),
            before_mlp: norms.before_mlp.filter(|_| mlp),
            after_mlp: norms.after_mlp.filter(|_| mlp),
        }
    }

    /// Returns the activation of a dense feed-forward part.
    pub(crate) fn activation(&self) -> ActivationName {
        match &self.feed_forward {
            FeedForward::Mlp(mlp) => mlp.activation,
            FeedForward::Moe(moe) => moe.activation,
            FeedForward::None => ActivationName::Silu,
        }
    }
}

impl Mixer {
    /// Returns the attention, if there is one.
    #[must_use]
    pub fn attention(&self) -> Option<&AttentionConfig> {
        match self {
            Self::Attention(attention) | Self::Parallel(ParallelConfig { attention, .. }) => {
                Some(attention)
            }
            Self::Latent(_)
            | Self::Mamba(_)
            | Self::Mamba2(_)
            | Self::Recurrent(_)
            | Self::None => None,
        }
    }

    /// Returns the attention to be changed, if there is one.
    pub(crate) fn attention_mut(&mut self) -> Option<&mut AttentionConfig> {
        match self {
            Self::Attention(attention) | Self::Parallel(ParallelConfig { attention, .. }) => {
                Some(attention)
            }
            Self::Latent(_)
            | Self::Mamba(_)
            | Self::Mamba2(_)
            | Self::Recurrent(_)
            | Self::None => None,
        }
    }

    /// Returns the number of layers of the KV cache that it uses.
    pub(crate) fn num_kv_layers(&self) -> usize {
        match self {
            Self::Attention(attention) => {
                usize::from(attention.is_causal && attention.kv_from.is_none())
            }
            Self::Recurrent(mixer) => usize::from(mixer.has_state()),
            Self::Latent(latent) => usize::from(latent.is_causal),
            Self::Mamba(_) | Self::Mamba2(_) => 1,
            Self::Parallel(_) => 2,
            Self::None => 0,
        }
    }
}

/// Reads the layers of the model, first layer first.
pub(super) fn read(
    config: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    match family.layers {
        LayerRule::Alike => read_alike(config, family, max_position_embeddings),
        LayerRule::Own(read) => read(config, family, max_position_embeddings),
    }
}

/// Reads layers that all have attention, and the same feed-forward part.
pub(crate) fn read_alike(
    config: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let windows = windows::read(config, family.windows)?;
    let sizes = intermediate_sizes(config, family, windows.len())?;
    let mlp_bias = bias(config, family.mlp_bias)?;
    let mlp = MlpConfig {
        intermediate_size: 0,
        is_gated: family.mlp.is_gated,
        activation: activation::read(config, family.mlp)?,
        bias: mlp_bias,
        down_bias: mlp_bias,
        sparsity: None,
        inner_norm: None,
        limit: None,
        gate_multiplier: 1.0,
        output_multiplier: 1.0,
    };
    let with_mlp = |mixer: Mixer, intermediate_size: usize| {
        let feed_forward = FeedForward::Mlp(MlpConfig { intermediate_size, ..mlp.clone() });
        LayerConfig { mixer, feed_forward }
    };
    if let Some(rule) = family.latent {
        let latent = latent::read(config, family, rule, max_position_embeddings)?;
        let layer = |size| with_mlp(Mixer::Latent(latent.clone()), size);
        return Ok(sizes.into_iter().map(layer).collect());
    }
    let (num_heads, num_kv_heads, head_dim) = heads::read(config, family)?;
    let AttentionNames { q_norm, .. } = family.names.attention;
    let attention = AttentionConfig {
        num_heads,
        num_kv_heads,
        head_dim,
        is_causal: true,
        sliding_window: None,
        chunk: None,
        sees_chunk_before: false,
        rope: None,
        qkv_bias: bias(config, family.qkv_bias)?,
        o_bias: bias(config, family.o_bias)?,
        scale: (head_dim as f32).sqrt().recip(),
        soft_cap: None,
        head_norm: q_norm.map(|_| family.head_norm),
        norms_after_rope: false,
        clip: None,
        alibi: None,
        rounds_alibi: false,
        distance_biases: None,
        disentangled: None,
        sinks: None,
        temperature: None,
        normalizes_values: false,
        kv_from: None,
        values_are_keys: false,
        value_dim: None,
        value_scale: 1.0,
        output_norm: None,
        cached_heads: None,
        joins_halves: false,
        always_causal: false,
        parts_halves: false,
        indexed_context: None,
        low_rank: None,
        has_gate: false,
        gate: GateForm::Sigmoid,
    };
    // All layers of a kind share a rotary embedding. A kind without layers needs none.
    let mut ropes: [Option<Option<RopeParameters>>; 2] = [None, None];
    let layer = |(sliding_window, intermediate_size): (Option<u32>, usize)| {
        let kind = usize::from(sliding_window.is_some());
        let rope = match &mut ropes[kind] {
            Some(rope) => rope.clone(),
            none => {
                let layer_type = LAYER_TYPES[kind];
                none.insert(rope::read(
                    config,
                    family,
                    layer_type,
                    head_dim,
                    max_position_embeddings,
                )?)
                .clone()
            }
        };
        let is_chunked = family.windows == WindowRule::ChunksWithRope;
        let (chunk, sliding_window) = match is_chunked {
            true => (sliding_window, None),
            false => (None, sliding_window),
        };
        let windows = AttentionConfig { sliding_window, chunk, ..attention.clone() };
        let mixer = Mixer::Attention(AttentionConfig { rope, ..windows });
        Ok(with_mlp(mixer, intermediate_size))
    };
    windows.into_iter().zip(sizes).map(layer).collect()
}

/// Reads the inner width of each layer: one for all, or a list.
fn intermediate_sizes(
    config: &Fields,
    family: &Family,
    count: usize,
) -> Result<Vec<usize>, ConfigError> {
    match config.sizes("intermediate_size", count)? {
        Some(sizes) => Ok(sizes),
        None => Ok(vec![intermediate_size(config, family)?; count]),
    }
}

/// Reads the inner width. Families without a gate have four times the hidden size by default.
fn intermediate_size(config: &Fields, family: &Family) -> Result<usize, ConfigError> {
    match config.size("intermediate_size")?.or(family.defaults.intermediate_size) {
        Some(size) => Ok(size),
        None if !family.mlp.is_gated => Ok(4 * config.required_size("hidden_size")?),
        None => config.required_size("intermediate_size"),
    }
}

fn bias(config: &Fields, rule: Bias) -> Result<bool, ConfigError> {
    match rule {
        Bias::Never => Ok(false),
        Bias::Always => Ok(true),
        Bias::IfSet(field) => Ok(config.flag(field)?.unwrap_or(false)),
        Bias::UnlessUnset(field) => config.flag_or(field, true),
    }
}

#[cfg(test)]
mod tests;
