//! Qwen2 and Qwen2.5: HF `Qwen2ForCausalLM`.
//!
//! Llama with biases on q, k and v only (<https://arxiv.org/abs/2407.10671>). With
//! `use_sliding_window`, the upper layers have a sliding window.

use super::{Bias, Defaults, Family, WindowRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen2ForCausalLM",
    model_type: "qwen2",
    models: "Qwen2, Qwen2.5, QwQ",
    defaults: Defaults {
        num_key_value_heads: Some(32),
        max_position_embeddings: 32_768,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::FromMaxWindowLayers,
    ..llama::FAMILY
};
