//! Voyage 4 nano: the class `VoyageQwen3BidirectionalEmbedModel` of vLLM, which its users choose.
//!
//! Qwen3 with attention to both sides, and a layer behind its hidden states. The vector of a text
//! is by default that of the last token.

use super::{
    ConfigError, EncoderClass, EncoderHead, Family, Fields, ModelConfig, PoolingField,
    attend_to_both_sides, qwen3,
};

pub(super) const FAMILY: Family = Family {
    architecture: "VoyageQwen3BidirectionalEmbedModel",
    model_type: "qwen3",
    models: "Voyage 4 nano",
    adjust,
    ..qwen3::FAMILY
};

const POOLING: PoolingField =
    PoolingField { field: "pooling", default: "last", accepted: &["last"] };

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "VoyageQwen3BidirectionalEmbedModel",
    family: &FAMILY,
    head: EncoderHead::Projected { module: "linear", pooling: POOLING },
}];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (qwen3::FAMILY.adjust)(fields, config)?;
    if config.attentions().any(|attention| attention.sliding_window.is_some()) {
        return Err(fields.invalid("use_sliding_window", "false"));
    }
    attend_to_both_sides(config);
    Ok(())
}
