//! Aria: HF `AriaForConditionalGeneration` (<https://arxiv.org/abs/2410.05993>). Its text model is
//! Llama with experts in each layer, and with one expert of all tokens.

use super::wrappers::{BESIDE, INSIDE, TOWER, sizes};
use super::{
    ConfigError, ExpertNames, Family, Fields, MlpNames, ModelConfig, MoeConfig, MoeNames, Scoring,
    SharedExpert, TextModel, VisionFamily, WeightNames, Wrapper, deepseek_v2, llama,
};

const CLASS: &str = "AriaForConditionalGeneration";

/// HF `AriaTextConfig`.
const TEXT: Family = Family {
    architecture: CLASS,
    model_type: "aria_text",
    aliases: &[("moe_num_experts", "num_experts"), ("moe_topk", "num_experts_per_tok")],
    names: WeightNames {
        moe: MoeNames {
            router: "mlp.router",
            experts: PUBLISHED,
            shared: MlpNames {
                inner: &["mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"],
                down_proj: "mlp.shared_experts.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The names of experts in published checkpoints.
const PUBLISHED: ExpertNames = ExpertNames::Fused {
    inner: "mlp.experts.fc1.weight",
    down_proj: "mlp.experts.fc2.weight",
    is_interleaved: false,
};

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "aria",
    models: "Aria",
    texts: &[TextModel {
        family: TEXT,
        sizes: sizes([32_000, 4_096, 4_096, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::Aria],
    audio: None,
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Experts have it whatever the field says.
    deepseek_v2::require(fields, "hidden_act", "silu")?;
    let dense = MoeConfig::of_dense(config);
    let shared = fields.size("moe_num_shared_experts")?.unwrap_or(2);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(8),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        scoring: Scoring::SoftmaxOfChosen,
        shared: Some(SharedExpert {
            intermediate_size: dense.intermediate_size.saturating_mul(shared),
            has_gate: false,
        }),
        ..dense
    };
    config.set_experts(fields, &moe, |_| true)
}
