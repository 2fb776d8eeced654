//! Granite 3 with experts: HF `GraniteMoeForCausalLM`.
//!
//! Granite with experts, whose matrices are stored as one tensor
//! (<https://arxiv.org/abs/2408.13359>).

use super::{
    Bias, ConfigError, ExpertNames, Family, Fields, ModelConfig, MoeConfig, MoeNames, Scoring,
    WeightNames, granite, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteMoeForCausalLM",
    model_type: "granitemoe",
    models: "Granite 3 with experts",
    aliases: &[("num_local_experts", "num_experts")],
    mlp_bias: Bias::Never,
    names: WeightNames {
        moe: MoeNames {
            router: "block_sparse_moe.router.layer",
            experts: ExpertNames::Stacked {
                inner: &["block_sparse_moe.input_linear"],
                down_proj: "block_sparse_moe.output_linear",
            },
            ..llama::MOE
        },
        in_adapters: IN_ADAPTERS,
        ..llama::NAMES
    },
    adjust,
    ..granite::FAMILY
};

/// In transformers 5, the router's weight is a parameter of the router itself.
pub(super) const IN_ADAPTERS: &[(&str, &str)] = &[(".router.layer", ".router")];

pub(super) fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    granite::adjust(fields, config)?;
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(8),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        renormalize: true,
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}
