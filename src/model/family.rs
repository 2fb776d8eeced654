//! What sets one model family apart from another, as data. The rest comes from `config.json`.

use super::config::WindowRule;
use super::{llama, mistral, qwen2, qwen3};

/// The families of this crate.
pub(super) const FAMILIES: [&Family; 4] =
    [&llama::FAMILY, &mistral::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY];

/// A family of decoder models: its rules where `config.json` is silent, and its weight names.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its entry in `architectures`.
    pub(crate) architecture: &'static str,
    /// Its `model_type`, by which transformers finds the config class.
    pub(crate) model_type: &'static str,
    /// What the HF config class assumes for fields that `config.json` leaves out.
    pub(crate) defaults: Defaults,
    /// Biases of the q, k and v projections.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output projection.
    pub(crate) o_bias: Bias,
    /// Biases of the MLP's projections.
    pub(crate) mlp_bias: Bias,
    /// Which layers have a sliding window.
    pub(crate) windows: WindowRule,
    /// What its tensors are called.
    pub(crate) names: WeightNames,
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.architecture == other.architecture
    }
}

/// Defaults that differ between the HF config classes.
#[derive(Debug)]
pub(crate) struct Defaults {
    /// As many as query heads where `None`.
    pub(crate) num_key_value_heads: Option<usize>,
    /// `hidden_size / num_attention_heads` where `None`.
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
}

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bias {
    Never,
    Always,
    /// As this boolean of `config.json` says.
    IfSet(&'static str),
}

/// Names of modules in the checkpoint; `.weight` and `.bias` are appended. Those below `layer` are
/// relative to `{layer}.{index}.`.
#[derive(Debug)]
pub(crate) struct WeightNames {
    pub(crate) embed_tokens: &'static str,
    pub(crate) layer: &'static str,
    pub(crate) input_layernorm: &'static str,
    pub(crate) attention: AttentionNames,
    pub(crate) post_attention_layernorm: &'static str,
    pub(crate) mlp: GatedMlpNames,
    pub(crate) norm: &'static str,
    pub(crate) lm_head: &'static str,
}

/// Names of the modules of an attention.
#[derive(Debug)]
pub(crate) struct AttentionNames {
    pub(crate) q_proj: &'static str,
    pub(crate) k_proj: &'static str,
    pub(crate) v_proj: &'static str,
    /// Norms of each query and key head, in families that have them.
    pub(crate) q_norm: Option<&'static str>,
    pub(crate) k_norm: Option<&'static str>,
    pub(crate) o_proj: &'static str,
}

/// Names of the modules of a gated MLP.
#[derive(Debug)]
pub(crate) struct GatedMlpNames {
    pub(crate) gate_proj: &'static str,
    pub(crate) up_proj: &'static str,
    pub(crate) down_proj: &'static str,
}

impl WeightNames {
    /// The module `name` of layer `index`.
    pub(crate) fn of_layer(&self, index: usize, name: &str) -> String {
        format!("{}.{index}.{name}", self.layer)
    }
}

/// The family whose `architectures` entry is `name`.
pub(crate) fn by_architecture(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.architecture == name)
}

/// The `architectures` entries of these families.
pub(crate) fn architectures() -> [&'static str; FAMILIES.len()] {
    FAMILIES.map(|family| family.architecture)
}
