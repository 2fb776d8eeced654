//! Mistral 7B and Nemo: HF `MistralForCausalLM`.
//!
//! Llama without biases, with a sliding window in every layer (<https://arxiv.org/abs/2310.06825>).
//! If `sliding_window` is null, as from version 0.2 on, no layer has a window. `layer_types`
//! overrides this rule.

use super::{Bias, Defaults, Family, WindowRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "MistralForCausalLM",
    model_type: "mistral",
    models: "Mistral 7B and Nemo, Ministral",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 131_072,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::Always,
    ..llama::FAMILY
};
