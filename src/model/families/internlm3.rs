//! InternLM3: `InternLM3ForCausalLM` of its folder's own code, and HF `InternLM3Config`, whose
//! models are of the class `LlamaForCausalLM`.
//!
//! Llama with biases by two fields.

use super::{Bias, Defaults, Family, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "InternLM3ForCausalLM",
    model_type: "internlm3",
    models: "InternLM3",
    // The names of transformers.
    aliases: &[("attention_bias", "qkv_bias"), ("mlp_bias", "bias")],
    defaults: Defaults {
        num_key_value_heads: Some(2),
        head_dim: Some(128),
        max_position_embeddings: 32_768,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("qkv_bias"),
    o_bias: Bias::IfSet("bias"),
    mlp_bias: Bias::IfSet("bias"),
    ..llama::FAMILY
};
