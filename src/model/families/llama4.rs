//! Llama 4, text only: HF `Llama4ForCausalLM`.
//!
//! Three layers of four have rotary embeddings and attend within chunks. The others have no
//! positions, and their queries grow with the position (<https://arxiv.org/abs/2501.19399>). An
//! expert's input is multiplied by its score, and one expert serves all tokens
//! (<https://ai.meta.com/blog/llama-4-multimodal-intelligence/>).

use super::{
    Bias, ConfigError, Defaults, ExpertNames, Family, FeedForward, Fields, HeadNormRule, MlpConfig,
    MlpNames, ModelConfig, MoeConfig, MoeNames, PositionRule, Scoring, SharedExpert,
    TemperatureConfig, WeightNames, WindowRule, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Llama4ForCausalLM",
    model_type: "llama4_text",
    models: "Llama 4, text only",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    windows: WindowRule::ChunksWithRope,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    names: WeightNames {
        mlp: MlpNames {
            inner: &["feed_forward.gate_proj", "feed_forward.up_proj"],
            down_proj: "feed_forward.down_proj",
        },
        moe: MoeNames {
            router: "feed_forward.router",
            experts: ExpertNames::Fused {
                inner: "feed_forward.experts.gate_up_proj",
                down_proj: "feed_forward.experts.down_proj",
                is_interleaved: false,
            },
            shared: MlpNames {
                inner: &[
                    "feed_forward.shared_expert.gate_proj",
                    "feed_forward.shared_expert.up_proj",
                ],
                down_proj: "feed_forward.shared_expert.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let count = config.layers.len();
    let has_norm = fields.flag("use_qk_norm")?.unwrap_or(true);
    let temperature = TemperatureConfig {
        floor: fields.positive("floor_scale")?.unwrap_or(8_192.0) as f32,
        scale: fields.number("attn_scale")?.unwrap_or(0.1) as f32,
        addend: 1.0,
    };
    let is_tuned = is_tuned(fields)?;
    let has_rope = fields.rope_layers(count)?;
    for (attention, has_rope) in config.attentions().zip(has_rope) {
        if has_rope {
            attention.head_norm = has_norm.then_some(HeadNormRule::Unit);
            attention.norms_after_rope = true;
        } else {
            attention.rope = None;
            attention.temperature = is_tuned.then_some(temperature);
        }
    }
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(16),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(1),
        scoring: Scoring::Sigmoid,
        scale_input: true,
        ..MoeConfig::of_dense(config)
    };
    let intermediate_size = moe.intermediate_size;
    let moe =
        MoeConfig { shared: Some(SharedExpert { intermediate_size, has_gate: false }), ..moe };
    let dense = fields.size("intermediate_size_mlp")?.unwrap_or(16_384);
    for layer in &mut config.layers {
        if let FeedForward::Mlp(MlpConfig { intermediate_size, .. }) = &mut layer.feed_forward {
            *intermediate_size = dense;
        }
    }
    let step = fields.size("interleave_moe_layer_step")?.unwrap_or(1);
    let listed = match fields.value("moe_layers") {
        None => None,
        Some(_) => Some(fields.indices("moe_layers")?),
    };
    config.set_experts(fields, &moe, |layer| match &listed {
        Some(listed) => listed.contains(&layer),
        None => (layer + 1).is_multiple_of(step),
    })
}

/// Returns whether queries grow with the position. The first checkpoints have a number, whose
/// truth vLLM takes as Python does.
fn is_tuned(fields: &Fields) -> Result<bool, ConfigError> {
    const FIELD: &str = "attn_temperature_tuning";
    match fields.value(FIELD).filter(|value| value.is_number()) {
        Some(number) => Ok(number.as_f64() != Some(0.0)),
        None => Ok(fields.flag(FIELD)?.unwrap_or(true)),
    }
}
