//! Solar Open: HF `SolarOpenForCausalLM`.
//!
//! GLM-4.5 with experts in every layer. Whole heads rotate, and they have no norms.

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, PositionRule, SharedExpert,
    glm4_moe, llama,
};

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
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_280);
    let num_experts = fields.size("num_experts")?.unwrap_or(128);
    let num_shared = fields.size("n_shared_experts")?.unwrap_or(1);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: Some(SharedExpert {
            intermediate_size: num_shared * intermediate_size,
            has_gate: false,
        }),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    config.set_experts(fields, &moe, |_| true)
}
