//! ERNIE 1 to 3: HF `ErnieModel` (<https://arxiv.org/abs/2107.02137>).
//!
//! BERT. Some models add the vector of a task to all tokens, which is that of the first task.

use super::{
    Bias, ClassHead, ConfigError, EncoderClass, EncoderHead, Family, Fields, HeadActivation,
    HeadModule, LmTransform, MaskedLmHead, ModelConfig, TokenTypes, WeightNames, bert, dense,
};

pub(super) const FAMILY: Family = Family {
    architecture: "ErnieModel",
    model_type: "ernie",
    models: "ERNIE 1 to 3, text2vec-base-chinese-paraphrase",
    names: WeightNames {
        embed_tokens: "ernie.embeddings.word_embeddings",
        embed_positions: "ernie.embeddings.position_embeddings",
        embed_norm: "ernie.embeddings.LayerNorm",
        layer: "ernie.encoder.layer",
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

const POOLER: &[HeadModule] = &[dense("ernie.pooler.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "ErnieModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "ErnieForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
    EncoderClass {
        architecture: "ErnieForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass {
        architecture: "ErnieForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::MaskedLm(MaskedLmHead {
            transform: Some(LmTransform {
                dense: "cls.predictions.transform.dense",
                bias: Bias::Always,
                activation: HeadActivation::Field("hidden_act", "gelu"),
                norm: "cls.predictions.transform.LayerNorm",
            }),
            decoder: "cls.predictions.decoder",
            bias: ("cls.predictions", Bias::Always),
            is_tied: true,
        }),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    if fields.flag("use_task_id")?.unwrap_or(false) {
        let count = fields.size("task_type_vocab_size")?.unwrap_or(3);
        let module = "ernie.embeddings.task_type_embeddings";
        config.embedding.task_types = Some(TokenTypes { module, count });
    }
    bert::of_bert(fields, config, "ernie.embeddings.token_type_embeddings")
}
