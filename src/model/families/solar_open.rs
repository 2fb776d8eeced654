//! Solar Open: HF `SolarOpenForCausalLM`.
//!
//! GLM-4.5 with experts in every layer. Whole heads rotate, and they have no norms.

use super::{ConfigError, Defaults, Family, Fields, ModelConfig, PositionRule, glm4_moe, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "SolarOpenForCausalLM",
    model_type: "solar_open",
    models: "Solar Open",
    defaults: Defaults {
        head_dim: Some(128),
        // Experts have a width of their own, and no layer is dense.
        intermediate_size: Some(1_280),
        rope_theta: 1_000_000.0,
        ..glm4_moe::FAMILY.defaults
    },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    rope: llama::ROPE,
    names: llama::NAMES,
    adjust,
    ..glm4_moe::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = glm4_moe::read_experts(fields, config, 1_280)?;
    config.set_experts(fields, &moe, |_| true)
}
