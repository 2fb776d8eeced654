//! Llama Nemotron Embed and Rerank: `LlamaBidirectionalModel` of NVIDIA's folders and of vLLM.
//!
//! Llama with attention to both sides. A field names the pooling, and one the divisor of logits.

use super::{
    ClassHead, ConfigError, EncoderClass, EncoderHead, Family, Fields, ModelConfig, PoolingField,
    attend_to_both_sides, llama, require_flag,
};

pub(super) const FAMILY: Family = Family {
    architecture: "LlamaBidirectionalModel",
    model_type: "llama_bidirec",
    models: "Llama Nemotron Embed 1B 2, Llama Nemotron Rerank 1B 2, Llama 3.2 NV-EmbedQA 1B 2",
    adjust,
    ..llama::FAMILY
};

/// As in vLLM, without the `weighted_avg` of the authors' code.
const POOLING: PoolingField =
    PoolingField { field: "pooling", default: "avg", accepted: &["avg", "cls", "last"] };

const SCORE: ClassHead = ClassHead {
    has_bias: false,
    temperature: Some("temperature"),
    ..ClassHead::plain("score").pooled_by(POOLING)
};

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass {
        architecture: "LlamaBidirectionalModel",
        family: &FAMILY,
        head: EncoderHead::Pooled(POOLING),
    },
    EncoderClass {
        architecture: "LlamaBidirectionalForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(SCORE),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    require_flag(fields, "is_causal", false)?;
    attend_to_both_sides(config);
    Ok(())
}
