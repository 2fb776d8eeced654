//! Qwen1.5-MoE and Qwen2-57B-A14B: HF `Qwen2MoeForCausalLM`.
//!
//! Qwen2 with experts, and one expert of all tokens, whose output has a learned factor
//! (<https://arxiv.org/abs/2407.10671>).

use super::{
    Bias, ConfigError, Defaults, Family, Fields, MlpNames, ModelConfig, MoeConfig, MoeNames,
    Scoring, SharedExpert, WeightNames, WindowRule, llama, qwen2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen2MoeForCausalLM",
    model_type: "qwen2_moe",
    models: "Qwen1.5-MoE, Qwen2-57B-A14B",
    defaults: Defaults {
        num_key_value_heads: Some(16),
        intermediate_size: Some(5_632),
        ..qwen2::FAMILY.defaults
    },
    qkv_bias: Bias::UnlessUnset("qkv_bias"),
    windows: WindowRule::EveryOther,
    names: WeightNames {
        moe: MoeNames {
            shared: MlpNames {
                inner: &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"],
                down_proj: "mlp.shared_expert.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..qwen2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.count("num_experts")?.unwrap_or(60);
    // Without experts, all layers are dense.
    if num_experts == 0 {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(4),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(1_408),
        shared: Some(SharedExpert {
            intermediate_size: fields.size("shared_expert_intermediate_size")?.unwrap_or(5_632),
            has_gate: true,
        }),
        ..common(fields, config)?
    };
    config.set_experts(fields, &moe, sparse_layers(fields)?)
}

/// Reads what Qwen2-MoE and Qwen3-MoE have in common.
pub(super) fn common(fields: &Fields, config: &ModelConfig) -> Result<MoeConfig, ConfigError> {
    Ok(MoeConfig {
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    })
}

/// Returns whether a layer has experts: every `decoder_sparse_step`th that is not one of
/// `mlp_only_layers`.
pub(super) fn sparse_layers(fields: &Fields) -> Result<impl Fn(usize) -> bool, ConfigError> {
    let step = fields.size("decoder_sparse_step")?.unwrap_or(1);
    let dense = fields.indices("mlp_only_layers")?;
    Ok(move |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step))
}
