//! BERT: HF `BertModel` and the classes with its heads (<https://arxiv.org/abs/1810.04805>).
//!
//! Learned positions, types of tokens, norms after the sums, and biases everywhere.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family,
    Fields, HeadActivation, HeadModule, LayerNorms, LmTransform, MaskedLmHead, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PositionRule, QkvNames, WeightNames, attend_to_both_sides,
    dense, llama, norm_after_sums, require_flag, require_text, sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BertModel",
    model_type: "bert",
    models: "BERT, and models of its shape: E5, BGE, GTE 1, all-MiniLM, Snowflake Arctic Embed 1",
    defaults: Defaults {
        intermediate_size: Some(3_072),
        max_position_embeddings: 512,
        tie_word_embeddings: true,
        norm_eps: 1e-12,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    positions: PositionRule::None,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "gelu" },
    names: NAMES,
    adjust,
    ..llama::FAMILY
};

pub(super) const NAMES: WeightNames = WeightNames {
    embed_tokens: "bert.embeddings.word_embeddings",
    embed_positions: "bert.embeddings.position_embeddings",
    embed_norm: "bert.embeddings.LayerNorm",
    layer: "bert.encoder.layer",
    norms: LayerNorms {
        before_attention: None,
        after_attention: Some("attention.output.LayerNorm"),
        before_mlp: None,
        after_mlp: Some("output.LayerNorm"),
    },
    attention: AttentionNames {
        qkv: QkvNames::Separate([
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ]),
        q_norm: None,
        k_norm: None,
        o_proj: "attention.output.dense",
    },
    mlp: MlpNames { inner: &["intermediate.dense"], down_proj: "output.dense" },
    lm_head: "cls.predictions.decoder",
    ..llama::NAMES
};

const MASKED_LM: EncoderHead = EncoderHead::MaskedLm(MaskedLmHead {
    transform: Some(LmTransform {
        dense: "cls.predictions.transform.dense",
        bias: Bias::Always,
        activation: HeadActivation::Field("hidden_act", "gelu"),
        norm: "cls.predictions.transform.LayerNorm",
    }),
    decoder: "cls.predictions.decoder",
    bias: ("cls.predictions", Bias::Always),
    is_tied: true,
});

const POOLER: &[HeadModule] = &[dense("bert.pooler.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "BertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "BertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
    EncoderClass {
        architecture: "BertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass { architecture: "BertForMaskedLM", family: &FAMILY, head: MASKED_LM },
    // vLLM's name of the same class.
    EncoderClass {
        architecture: "BertSpladeSparseEmbeddingModel",
        family: &FAMILY,
        head: MASKED_LM,
    },
    // The class of the authors of ColBERT.
    EncoderClass {
        architecture: "HF_ColBERT",
        family: &FAMILY,
        head: EncoderHead::TokenVectors { module: "linear", other: None, has_bias: Some(false) },
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    of_bert(fields, config, "bert.embeddings.token_type_embeddings")
}

/// Reads what BERT and RoBERTa have in common.
pub(super) fn of_bert(
    fields: &Fields,
    config: &mut ModelConfig,
    token_types: &'static str,
) -> Result<(), ConfigError> {
    require_flag(fields, "is_decoder", false)?;
    require_text(fields, "position_embedding_type", "absolute")?;
    sum_embeddings(fields, config, Some((token_types, 2)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
