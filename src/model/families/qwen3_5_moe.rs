//! Qwen3.5 with experts, the text models: HF `Qwen3_5MoeForCausalLM`.
//!
//! Qwen3.5 with the experts of Qwen3-Next in all layers.

use super::{ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, qwen3_5, qwen3_next};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen3_5MoeForCausalLM",
    model_type: "qwen3_5_moe_text",
    models: "Qwen3.5 with experts, the text models",
    defaults: Defaults { num_key_value_heads: Some(2), ..qwen3_5::FAMILY.defaults },
    adjust,
    ..qwen3_5::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(256),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        renormalize: true,
        ..qwen3_next::experts(fields, config)?
    };
    config.set_experts(fields, &moe, |_| true)
}
