//! OpenAI Privacy Filter: HF `OpenAIPrivacyFilterModel` and its classifier of tokens.
//!
//! gpt-oss with attention to both sides, within a window in all layers. Rotary pairs are
//! neighbours. The gate of an expert stands before its other projection.

use super::{
    ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, ExpertNames, Family, Fields,
    ModelConfig, MoeNames, PositionRule, WeightNames, WindowRule, attend_to_both_sides, gpt_oss,
};

pub(super) const FAMILY: Family = Family {
    architecture: "OpenAIPrivacyFilterModel",
    model_type: "openai_privacy_filter",
    models: "OpenAI Privacy Filter",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        intermediate_size: Some(640),
        ..gpt_oss::FAMILY.defaults
    },
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    windows: WindowRule::Always,
    names: WeightNames {
        moe: MoeNames {
            experts: ExpertNames::Fused {
                inner: "mlp.experts.gate_up_proj",
                down_proj: "mlp.experts.down_proj",
                is_interleaved: false,
            },
            ..gpt_oss::FAMILY.names.moe
        },
        ..gpt_oss::FAMILY.names
    },
    adjust,
    ..gpt_oss::FAMILY
};

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass {
        architecture: "OpenAIPrivacyFilterModel",
        family: &FAMILY,
        head: EncoderHead::Vectors,
    },
    EncoderClass {
        architecture: "OpenAIPrivacyFilterForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("score")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (gpt_oss::FAMILY.adjust)(fields, config)?;
    // A token sees as many on each side, and itself.
    for attention in config.attentions() {
        attention.sliding_window = attention.sliding_window.map(|window| window + 1);
    }
    attend_to_both_sides(config);
    Ok(())
}
