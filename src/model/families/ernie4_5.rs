//! ERNIE 4.5, the dense models: HF `Ernie4_5ForCausalLM`.
//!
//! Llama with rotary embeddings of neighbouring pairs.

use super::{Bias, Defaults, Family, PositionRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "Ernie4_5ForCausalLM",
    model_type: "ernie4_5",
    models: "ERNIE 4.5, dense",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        tie_word_embeddings: true,
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("use_bias"),
    o_bias: Bias::IfSet("use_bias"),
    mlp_bias: Bias::IfSet("use_bias"),
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    ..llama::FAMILY
};
