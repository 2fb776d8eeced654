//! Qwen2 and Qwen2.5: HF `Qwen2ForCausalLM`.
//!
//! Llama with biases on q, k and v only (<https://arxiv.org/abs/2407.10671>). With
//! `use_sliding_window`, the upper layers have a sliding window.

use super::config::WindowRule;
use super::family::{Bias, Defaults, Family};
use super::llama;

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen2ForCausalLM",
    model_type: "qwen2",
    defaults: Defaults {
        num_key_value_heads: Some(32),
        head_dim: None,
        max_position_embeddings: 32_768,
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::FromMaxWindowLayers,
    names: llama::NAMES,
};
