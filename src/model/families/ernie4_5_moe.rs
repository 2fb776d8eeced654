//! ERNIE 4.5 with experts: HF `Ernie4_5_MoeForCausalLM`.
//!
//! ERNIE 4.5 with experts from the second layer on. A bias of each expert changes the choice, but
//! not the weight of an expert.

use super::{
    ConfigError, Defaults, Family, Fields, MlpNames, ModelConfig, MoeConfig, MoeNames, MtpForm,
    Scoring, SharedExpert, WeightNames, ernie4_5, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Ernie4_5_MoeForCausalLM",
    model_type: "ernie4_5_moe",
    models: "ERNIE 4.5 with experts",
    aliases: &[("moe_num_experts", "num_experts"), ("moe_k", "num_experts_per_tok")],
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: None,
        ..ernie4_5::FAMILY.defaults
    },
    names: WeightNames {
        moe: MoeNames {
            correction_bias: "mlp.moe_statics.e_score_correction_bias",
            shared: MlpNames {
                inner: &["mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"],
                down_proj: "mlp.shared_experts.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    mtp: MtpForm::Block,
    adjust,
    ..ernie4_5::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.logits.has_bias = fields.flag("use_bias")?.unwrap_or(false);
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_536);
    let num_shared = fields.count("moe_num_shared_experts")?.unwrap_or(2);
    let shared = (num_shared > 0).then_some(SharedExpert {
        intermediate_size: num_shared * intermediate_size,
        has_gate: false,
    });
    let dense = MoeConfig::of_dense(config);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(64),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(6),
        intermediate_size,
        renormalize: true,
        min_sum: fields.number("moe_norm_min")?.map_or(dense.min_sum, |least| least as f32),
        scoring: Scoring::Softmax,
        correction_bias: Some([1, fields.size("num_experts")?.unwrap_or(64)].into()),
        shared,
        ..dense
    };
    let start = fields.count("moe_layer_start_index")?.unwrap_or(1);
    let end = match fields.integer("moe_layer_end_index")? {
        None | Some(-1) => usize::MAX,
        Some(end) => usize::try_from(end)
            .map_err(|_| fields.invalid("moe_layer_end_index", "-1 or the index of a layer"))?,
    };
    let interval = fields.size("moe_layer_interval")?.unwrap_or(1);
    config.set_experts(fields, &moe, |layer| {
        (start..=end).contains(&layer) && (layer + 1).is_multiple_of(interval)
    })
}
