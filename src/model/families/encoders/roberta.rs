//! RoBERTa, XLM-RoBERTa and CamemBERT: HF `RobertaModel`, `XLMRobertaModel` and `CamembertModel`
//! (<https://arxiv.org/abs/1907.11692>, <https://arxiv.org/abs/1911.02116>).
//!
//! BERT with positions that begin behind the row of the padding token.

use super::{
    Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields,
    HeadActivation, HeadModule, LmTransform, MaskedLmHead, ModelConfig, PositionRule, WeightNames,
    bert, dense, xlm_flash,
};

pub(super) const FAMILY: Family = Family {
    architecture: "RobertaModel",
    model_type: "roberta",
    models: "RoBERTa, all-roberta",
    positions: PositionRule::AfterPadding,
    defaults: Defaults { norm_eps: 1e-12, ..bert::FAMILY.defaults },
    names: WeightNames {
        embed_tokens: "roberta.embeddings.word_embeddings",
        embed_positions: "roberta.embeddings.position_embeddings",
        embed_norm: "roberta.embeddings.LayerNorm",
        layer: "roberta.encoder.layer",
        lm_head: "lm_head.decoder",
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

pub(super) const XLM: Family = Family {
    architecture: "XLMRobertaModel",
    model_type: "xlm-roberta",
    models: "XLM-RoBERTa, multilingual E5, BGE-M3, Snowflake Arctic Embed 2, Jina Reranker 2",
    other_names: Some(&xlm_flash::WITH_POSITIONS),
    ..FAMILY
};

const CAMEMBERT: Family = Family {
    architecture: "CamembertModel",
    model_type: "camembert",
    models: "CamemBERT",
    ..FAMILY
};

const LAYERS: &[HeadModule] = &[dense("classifier.dense", "tanh")];

pub(super) const SEQUENCE: EncoderHead =
    EncoderHead::Sequence(ClassHead::plain("classifier.out_proj").behind(LAYERS));

pub(super) const TOKENS: EncoderHead = EncoderHead::Tokens(ClassHead::plain("classifier"));

pub(super) const MASKED_LM: EncoderHead = EncoderHead::MaskedLm(MaskedLmHead {
    transform: Some(LmTransform {
        dense: "lm_head.dense",
        bias: Bias::Always,
        activation: HeadActivation::Fixed("gelu"),
        norm: "lm_head.layer_norm",
    }),
    decoder: "lm_head.decoder",
    bias: ("lm_head", Bias::Always),
    is_tied: true,
});

const fn class(
    architecture: &'static str,
    family: &'static Family,
    head: EncoderHead,
) -> EncoderClass {
    EncoderClass { architecture, family, head }
}

pub(super) const CLASSES: &[EncoderClass] = &[
    class("RobertaModel", &FAMILY, EncoderHead::Vectors),
    class("RobertaForSequenceClassification", &FAMILY, SEQUENCE),
    class("RobertaForTokenClassification", &FAMILY, TOKENS),
    class("RobertaForMaskedLM", &FAMILY, MASKED_LM),
    class("XLMRobertaModel", &XLM, EncoderHead::Vectors),
    // vLLM's name of BGE-M3 with its layers of tokens.
    class("BgeM3EmbeddingModel", &XLM, EncoderHead::Threefold),
    class("XLMRobertaForSequenceClassification", &XLM, SEQUENCE),
    class("XLMRobertaForTokenClassification", &XLM, TOKENS),
    class("XLMRobertaForMaskedLM", &XLM, MASKED_LM),
    class("CamembertModel", &CAMEMBERT, EncoderHead::Vectors),
    class("CamembertForSequenceClassification", &CAMEMBERT, SEQUENCE),
    class("CamembertForTokenClassification", &CAMEMBERT, TOKENS),
    class("CamembertForMaskedLM", &CAMEMBERT, MASKED_LM),
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(FAMILY.positions.unused_rows(fields)?);
    bert::of_bert(fields, config, "roberta.embeddings.token_type_embeddings")
}
