//! Qwen3, the dense models: HF `Qwen3ForCausalLM`.
//!
//! Qwen2 with an RMS norm over each query and key head instead of the biases
//! (<https://arxiv.org/abs/2505.09388>). The width of a head does not depend on the hidden size.

use super::{Bias, Defaults, Family, WindowRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen3ForCausalLM",
    model_type: "qwen3",
    models: "Qwen3",
    defaults: Defaults {
        num_key_value_heads: Some(32),
        head_dim: Some(128),
        max_position_embeddings: 32_768,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::Never,
    windows: WindowRule::FromMaxWindowLayers,
    names: llama::WITH_HEAD_NORMS,
    ..llama::FAMILY
};
