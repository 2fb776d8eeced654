//! FlexOlmo: HF `FlexOlmoForCausalLM`.
//!
//! OLMoE's experts with the norms of OLMo 2 (<https://arxiv.org/abs/2507.07024>).

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, Scoring, WeightNames, llama,
    olmo2, olmoe,
};

pub(super) const FAMILY: Family = Family {
    architecture: "FlexOlmoForCausalLM",
    model_type: "flex_olmo",
    models: "FlexOlmo",
    defaults: Defaults { max_position_embeddings: 4_096, rope_theta: 500_000.0, ..llama::DEFAULTS },
    names: WeightNames { norms: olmo2::AFTER, ..olmoe::FAMILY.names },
    adjust,
    ..olmoe::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(7),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(5),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}
