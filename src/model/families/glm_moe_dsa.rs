//! GLM-5: HF `GlmMoeDsaForCausalLM`.
//!
//! DeepSeek V3.2's attention, whose indexer some layers share, and its experts. As there, contexts
//! are at most `index_topk` tokens.

use super::deepseek_v3::Experts;
use super::{
    ConfigError, Defaults, Family, Fields, LatentRule, ModelConfig, deepseek_v3, deepseek_v32,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GlmMoeDsaForCausalLM",
    model_type: "glm_moe_dsa",
    models: "GLM-5, contexts of at most index_topk tokens",
    defaults: Defaults { max_position_embeddings: 202_752, norm_eps: 1e-5, ..llama::DEFAULTS },
    latent: Some(&LatentRule {
        q_lora_rank: Some(2_048),
        qk_nope_head_dim: 192,
        v_head_dim: Some(256),
        has_rope_interleave: false,
        ..deepseek_v3::LATENT
    }),
    adjust,
    ..deepseek_v32::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults = Experts {
        num_experts: 256,
        top_k: 8,
        intermediate_size: 2_048,
        groups: (1, 1),
        scale: 2.5,
    };
    deepseek_v32::set_experts(fields, config, &defaults)
}
