//! OLMoE: HF `OlmoeForCausalLM`.
//!
//! Llama with 64 experts a layer, of which each token takes eight
//! (<https://arxiv.org/abs/2409.02060>). All query heads of a token have one norm, and all key
//! heads.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, ModelConfig, MoeConfig, Scoring,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "OlmoeForCausalLM",
    model_type: "olmoe",
    models: "OLMoE",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    head_norm: HeadNormRule::RmsAcrossHeads,
    names: llama::WITH_HEAD_NORMS,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let clip = fields.positive("clip_qkv")?.map(|clip| clip as f32);
    config.attentions().for_each(|attention| attention.clip = clip);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(64),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}
