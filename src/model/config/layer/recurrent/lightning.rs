//! Lightning attention, whose states forget at fixed rates.

use std::sync::Arc;

use playhouse_kernels::LinearHeads;

use crate::model::config::{ActivationName, RopeParameters};

/// Linear attention whose heads forget at fixed rates: HF `MiniMaxLightningAttention`.
#[derive(Debug, Clone, PartialEq)]
pub struct LightningConfig {
    /// Elements of a head.
    pub head_dim: usize,
    /// The activation of queries, keys and values.
    pub activation: ActivationName,
    /// The rate of each head: `[num_heads]`.
    pub slopes: Arc<[f32]>,
    /// Whether the projection to queries, keys and values has a bias.
    pub qkv_bias: bool,
    /// Whether query and key heads are normalised.
    pub has_head_norms: bool,
    /// The rotary embedding of queries and keys, after their norms.
    pub rope: Option<RopeParameters>,
    /// The factor of queries.
    pub scale: f32,
    /// The groups of outputs, each with a norm of its own; a divisor of the number of outputs.
    pub num_groups: usize,
    /// The number added to the mean squares of outputs.
    pub norm_eps: f32,
    pub(crate) names: &'static LightningNames,
}

/// Names of the modules of lightning attention.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LightningNames {
    /// The projection to queries, keys and values.
    pub(crate) qkv: &'static str,
    /// Whether it has the rows of all three head by head. Otherwise it has those of all queries,
    /// then of all keys, then of all values.
    pub(crate) is_by_head: bool,
    /// The norms of query heads and of key heads, in families that have them.
    pub(crate) head_norms: [&'static str; 2],
    /// The norm of outputs.
    pub(crate) norm: &'static str,
    /// The projection to the gates of outputs.
    pub(crate) gate: &'static str,
    pub(crate) out: &'static str,
}

/// The names in HF's class.
const NAMES: LightningNames = LightningNames {
    qkv: "self_attn.qkv_proj",
    is_by_head: true,
    head_norms: ["", ""],
    norm: "self_attn.norm",
    gate: "self_attn.output_gate",
    out: "self_attn.out_proj",
};

/// The number that HF's class adds to the mean squares of outputs, whatever `rms_norm_eps` is.
const NORM_EPS: f32 = 1e-6;

impl LightningConfig {
    /// Returns the mixer of layer `layer` of `num_layers`, as HF's class has it. The rates are
    /// those of `MiniMaxLightningAttention.get_slope_rate`.
    pub(crate) fn of_layer(
        (layer, num_layers): (usize, usize),
        num_heads: usize,
        head_dim: usize,
        activation: ActivationName,
    ) -> Self {
        let factor = 1.0 - layer as f64 / (num_layers as f64 - 1.0 + 1e-5) + 1e-5;
        let base = 2.0_f64.powf(-8.0 / num_heads as f64);
        let slope = |head: usize| (base.powf(head as f64 + 1.0) * factor) as f32;
        Self {
            head_dim,
            activation,
            slopes: (0..num_heads).map(slope).collect(),
            qkv_bias: false,
            has_head_norms: false,
            rope: None,
            scale: 1.0,
            num_groups: 1,
            norm_eps: NORM_EPS,
            names: &NAMES,
        }
    }

    /// Returns the elements of all heads of a token.
    pub(crate) fn width(&self) -> usize {
        self.slopes.len() * self.head_dim
    }

    /// Returns the shape of the states.
    pub(crate) fn heads(&self) -> LinearHeads {
        let (num_heads, head_dim) = (self.slopes.len(), self.head_dim);
        LinearHeads { num_key_heads: num_heads, num_heads, key_dim: head_dim, value_dim: head_dim }
    }
}
