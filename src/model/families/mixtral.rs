//! Mixtral: HF `MixtralForCausalLM`.
//!
//! Mistral with eight experts a layer, of which each token takes two
//! (<https://arxiv.org/abs/2401.04088>).

use super::{
    ConfigError, Defaults, ExpertNames, Family, Fields, ModelConfig, MoeConfig, MoeNames, Scoring,
    WeightNames, WindowRule, llama, mistral,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MixtralForCausalLM",
    model_type: "mixtral",
    models: "Mixtral 8x7B and 8x22B",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults { rope_theta: 1_000_000.0, norm_eps: 1e-5, ..mistral::FAMILY.defaults },
    windows: WindowRule::IfSet,
    names: WeightNames {
        moe: MoeNames {
            router: "block_sparse_moe.gate",
            experts: ExpertNames::Each {
                module: "block_sparse_moe.experts",
                inner: &["w1", "w3"],
                down_proj: "w2",
            },
            ..llama::MOE
        },
        in_adapters: &[(".mlp.", ".block_sparse_moe.")],
        ..llama::NAMES
    },
    adjust,
    ..mistral::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(8),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        renormalize: true,
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}
