//! EuroBERT: HF `EuroBertModel` (<https://arxiv.org/abs/2503.05500>).
//!
//! Llama with attention to both sides.

use super::{
    Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields, HeadModule,
    MaskedLmHead, ModelConfig, PoolingField, attend_to_both_sides, dense, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "EuroBertModel",
    model_type: "eurobert",
    models: "EuroBERT",
    defaults: Defaults {
        intermediate_size: Some(3_072),
        max_position_embeddings: 8_192,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    adjust,
    ..llama::FAMILY
};

const LAYERS: &[HeadModule] = &[dense("dense", "gelu")];

const POOLING: PoolingField = PoolingField {
    field: "classifier_pooling",
    default: "late",
    accepted: &["bos", "mean", "late"],
};

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "EuroBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "EuroBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(
            ClassHead::plain("classifier").behind(LAYERS).pooled_by(POOLING),
        ),
    },
    EncoderClass {
        architecture: "EuroBertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass {
        architecture: "EuroBertForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::MaskedLm(MaskedLmHead {
            transform: None,
            decoder: "lm_head",
            bias: ("lm_head", Bias::IfSet("mlp_bias")),
            is_tied: false,
        }),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const OF_THE_AUTHORS: &str = "clf_pooling";
    // The code in the authors' folders has another name for the field.
    let pooling = fields.text(POOLING.field)?.unwrap_or(POOLING.default);
    if fields.text(OF_THE_AUTHORS)?.is_some_and(|other| other != pooling) {
        let expected = format!("\"{pooling}\", as {}", POOLING.field);
        return Err(fields.invalid(OF_THE_AUTHORS, &expected));
    }
    attend_to_both_sides(config);
    Ok(())
}
