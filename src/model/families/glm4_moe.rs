//! GLM-4.5 and GLM-4.6: HF `Glm4MoeForCausalLM`.
//!
//! Experts are scored by sigmoids, chosen within groups, and a bias of each expert changes the
//! choice (<https://arxiv.org/abs/2508.06471>). The first layers are dense. The layers after the
//! last, for several tokens a step, are not read.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, PositionRule,
    SharedExpert, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Glm4MoeForCausalLM",
    model_type: "glm4_moe",
    models: "GLM-4.5, GLM-4.6",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 131_072,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    rope: llama::PARTIAL_ROPE,
    names: llama::WITH_HEAD_NORMS,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("use_qk_norm")?.unwrap_or(false) {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    let moe = read_experts(fields, config, 1_408)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    let first = fields.count("first_k_dense_replace")?.unwrap_or(1);
    config.set_experts(fields, &moe, |layer| layer >= first)
}

/// Returns the experts of GLM-4.5. `intermediate_size` is that of a config without one.
pub(super) fn read_experts(
    fields: &Fields,
    config: &ModelConfig,
    intermediate_size: usize,
) -> Result<MoeConfig, ConfigError> {
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(intermediate_size);
    let num_shared = fields.size("n_shared_experts")?.unwrap_or(1);
    let num_experts = fields.size("num_experts")?.unwrap_or(128);
    Ok(MoeConfig {
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
    })
}
