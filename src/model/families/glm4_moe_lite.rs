//! GLM-4.7 Flash: HF `Glm4MoeLiteForCausalLM`.
//!
//! DeepSeek V3's attention and experts. A list names the layers that have experts. `head_dim` is
//! another name of `qk_rope_head_dim`.

use super::deepseek_v3::Experts;
use super::{
    ConfigError, Defaults, Family, Fields, LatentRule, ModelConfig, deepseek_v2, deepseek_v3, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Glm4MoeLiteForCausalLM",
    model_type: "glm4_moe_lite",
    other_model_types: &[],
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
        ("head_dim", "qk_rope_head_dim"),
    ],
    models: "GLM-4.7 Flash",
    defaults: Defaults { max_position_embeddings: 202_752, norm_eps: 1e-5, ..llama::DEFAULTS },
    latent: Some(&LatentRule {
        q_lora_rank: Some(768),
        qk_nope_head_dim: 192,
        v_head_dim: Some(256),
        ..deepseek_v3::LATENT
    }),
    adjust,
    ..deepseek_v3::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults =
        Experts { num_experts: 64, top_k: 4, intermediate_size: 1_536, groups: (1, 1), scale: 1.8 };
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => deepseek_v2::set_experts(fields, config, &moe, 1),
    }
}
