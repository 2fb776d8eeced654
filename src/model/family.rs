//! The differences between model families, as data. All other facts come from `config.json`.

use super::config::WindowRule;
use super::{llama, mistral, qwen2, qwen3};

/// The families of this crate.
pub(super) const FAMILIES: [&Family; 4] =
    [&llama::FAMILY, &mistral::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY];

/// A family of decoder models: its rules for settings that `config.json` does not have, and its
/// weight names.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its entry in `architectures`.
    pub(crate) architecture: &'static str,
    /// Its `model_type`, by which transformers finds the config class.
    pub(crate) model_type: &'static str,
    /// The HF config class's defaults for fields that are absent from `config.json`.
    pub(crate) defaults: Defaults,
    /// Biases of the q, k and v projections.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output projection.
    pub(crate) o_bias: Bias,
    /// Biases of the MLP's projections.
    pub(crate) mlp_bias: Bias,
    /// The rule for the layers that have a sliding window.
    pub(crate) windows: WindowRule,
    /// The names of its tensors.
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
    /// Key and value heads. `None`: as many as query heads.
    pub(crate) num_key_value_heads: Option<usize>,
    /// The width of a head. `None`: `hidden_size / num_attention_heads`.
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
}

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bias {
    Never,
    Always,
    /// If this boolean of `config.json` is true.
    IfSet(&'static str),
}

/// Names of modules in the checkpoint, to which `.weight` and `.bias` are appended. Names of a
/// layer's modules are relative to `{layer}.{index}.`.
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

/// Names of the modules of attention.
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
    /// Returns the full name of the module `name` of layer `index`.
    pub(crate) fn of_layer(&self, index: usize, name: &str) -> String {
        format!("{}.{index}.{name}", self.layer)
    }
}

/// Returns the family whose `architectures` entry is `name`.
pub(crate) fn by_architecture(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.architecture == name)
}

/// Returns the `architectures` entries of these families.
pub(crate) fn architectures() -> [&'static str; FAMILIES.len()] {
    FAMILIES.map(|family| family.architecture)
}
