//! Sarvam 30B: `SarvamMoEForCausalLM` of its folder's own code, and HF `SarvamMoEConfig`, whose
//! models are of the class `Glm4MoeForCausalLM`.
//!
//! Ling 2.0 with other defaults. transformers writes the names of Ling.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, bailing_moe, deepseek_v2,
    glm4_moe, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "SarvamMoEForCausalLM",
    model_type: "sarvam_moe",
    models: "Sarvam 30B",
    // The names of the authors, and those of transformers.
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_shared_experts", "n_shared_experts"),
        ("use_qkv_bias", "attention_bias"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(64),
        intermediate_size: Some(8_192),
        max_position_embeddings: 131_072,
        rope_theta: 8_000_000.0,
        norm_eps: 1e-6,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    adjust,
    ..bailing_moe::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    deepseek_v2::require(fields, "score_function", "sigmoid")?;
    if !fields.flag_or("use_qk_norm", true)? {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(6),
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(2.5) as f32,
        ..glm4_moe::read_experts(fields, config, 1_024)?
    };
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    let first = fields.count("first_k_dense_replace")?.unwrap_or(1);
    config.set_experts(fields, &moe, |layer| layer >= first)
}
