//! LFM2 with experts: HF `Lfm2MoeForCausalLM`.
//!
//! LFM2 whose layers have experts after the first ones. Experts are scored by sigmoids, and a bias
//! of each expert changes the choice.

use super::{
    ConfigError, Defaults, ExpertNames, Family, Fields, ModelConfig, MoeConfig, MoeNames, Scoring,
    WeightNames, lfm2, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Lfm2MoeForCausalLM",
    model_type: "lfm2_moe",
    models: "LFM2-8B-A1B",
    aliases: &[("tie_embedding", "tie_word_embeddings")],
    defaults: Defaults { intermediate_size: Some(7_168), ..lfm2::FAMILY.defaults },
    names: WeightNames {
        moe: MoeNames {
            router: "feed_forward.gate",
            correction_bias: "feed_forward.expert_bias",
            experts: ExpertNames::Each {
                module: "feed_forward.experts",
                inner: &["w1", "w3"],
                down_proj: "w2",
            },
            ..llama::MOE
        },
        ..lfm2::FAMILY.names
    },
    adjust,
    ..lfm2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.size("num_experts")?.unwrap_or(32);
    let has_bias = fields.flag("use_expert_bias")?.unwrap_or(true);
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(4),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(1_792),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        scoring: Scoring::Sigmoid,
        correction_bias: has_bias.then(|| [num_experts].into()),
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        ..MoeConfig::of_dense(config)
    };
    let first = fields.count("num_dense_layers")?.unwrap_or(2);
    config.set_experts(fields, &moe, |layer| layer >= first)
}
