//! Seed-OSS: HF `SeedOssForCausalLM`.
//!
//! Llama with biases on q, k and v.

use super::{Bias, Defaults, Family, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "SeedOssForCausalLM",
    model_type: "seed_oss",
    models: "Seed-OSS",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 524_288,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::UnlessUnset("attention_bias"),
    o_bias: Bias::IfSet("attention_out_bias"),
    ..llama::FAMILY
};
