//! Qwen3-30B-A3B and Qwen3-235B-A22B: HF `Qwen3MoeForCausalLM`.
//!
//! Qwen3 with 128 experts a layer, of which each token takes eight
//! (<https://arxiv.org/abs/2505.09388>).

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, WindowRule, qwen2_moe, qwen3,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen3MoeForCausalLM",
    model_type: "qwen3_moe",
    models: "Qwen3-30B-A3B, Qwen3-235B-A22B",
    // transformers 5 writes this name.
    aliases: &[("num_local_experts", "num_experts")],
    // Unlike `Qwen3Config`, this class has no width of a head of its own.
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: None,
        intermediate_size: Some(6_144),
        ..qwen3::FAMILY.defaults
    },
    windows: WindowRule::IfUsed,
    adjust,
    ..qwen3::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.count("num_experts")?.unwrap_or(128);
    // Without experts, all layers are dense.
    if num_experts == 0 {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(768),
        ..qwen2_moe::common(fields, config)?
    };
    config.set_experts(fields, &moe, qwen2_moe::sparse_layers(fields)?)
}
