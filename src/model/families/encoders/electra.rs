//! ELECTRA: HF `ElectraModel`, the discriminator (<https://arxiv.org/abs/2003.10555>).
//!
//! BERT with embeddings of a width of their own, from which a matrix leads to hidden states.

use super::{
    ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields, HeadModule,
    ModelConfig, SumProjection, WeightNames, bert, dense,
};

/// The width of embeddings without the field.
const EMBEDDING_SIZE: usize = 128;

pub(super) const FAMILY: Family = Family {
    architecture: "ElectraModel",
    model_type: "electra",
    models: "ELECTRA, KoELECTRA, GELECTRA",
    defaults: Defaults { intermediate_size: Some(1_024), ..bert::FAMILY.defaults },
    names: WeightNames {
        embed_tokens: "electra.embeddings.word_embeddings",
        embed_positions: "electra.embeddings.position_embeddings",
        embed_norm: "electra.embeddings.LayerNorm",
        layer: "electra.encoder.layer",
        lm_head: "generator_lm_head",
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

const LAYERS: &[HeadModule] = &[dense("classifier.dense", "gelu")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "ElectraModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "ElectraForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier.out_proj").behind(LAYERS)),
    },
    EncoderClass {
        architecture: "ElectraForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    let width = fields.size("embedding_size")?.unwrap_or(EMBEDDING_SIZE);
    let projection = SumProjection { width, module: "electra.embeddings_project" };
    config.embedding.sum_projection = (width != config.hidden_size).then_some(projection);
    bert::of_bert(fields, config, "electra.embeddings.token_type_embeddings")
}
