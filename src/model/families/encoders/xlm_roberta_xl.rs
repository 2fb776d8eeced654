//! XLM-RoBERTa-XL: HF `XLMRobertaXLModel` (<https://arxiv.org/abs/2105.00572>).
//!
//! XLM-RoBERTa with norms before the parts of a layer, and none of the embeddings.

use super::{
    ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields, LayerNorms, ModelConfig,
    TokenTypes, WeightNames, attend_to_both_sides, require_flag, require_text, roberta,
};

pub(super) const FAMILY: Family = Family {
    architecture: "XLMRobertaXLModel",
    model_type: "xlm-roberta-xl",
    models: "XLM-RoBERTa-XL and XXL",
    defaults: Defaults {
        intermediate_size: Some(10_240),
        max_position_embeddings: 514,
        norm_eps: 1e-5,
        ..roberta::FAMILY.defaults
    },
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("attention.self_attn_layer_norm"),
            after_attention: None,
            before_mlp: Some("LayerNorm"),
            after_mlp: None,
        },
        norm: "roberta.encoder.LayerNorm",
        ..roberta::FAMILY.names
    },
    adjust,
    ..roberta::FAMILY
};

const fn class(architecture: &'static str, head: EncoderHead) -> EncoderClass {
    EncoderClass { architecture, family: &FAMILY, head }
}

pub(super) const CLASSES: &[EncoderClass] = &[
    class("XLMRobertaXLModel", EncoderHead::Vectors),
    class("XLMRobertaXLForSequenceClassification", roberta::SEQUENCE),
    class("XLMRobertaXLForTokenClassification", roberta::TOKENS),
    class("XLMRobertaXLForMaskedLM", roberta::MASKED_LM),
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    require_flag(fields, "is_decoder", false)?;
    require_text(fields, "position_embedding_type", "absolute")?;
    config.embedding.learned_positions = Some(FAMILY.positions.unused_rows(fields)?);
    let count = fields.count("type_vocab_size")?.unwrap_or(1);
    let module = "roberta.embeddings.token_type_embeddings";
    config.embedding.token_types = (count > 0).then_some(TokenTypes { module, count });
    attend_to_both_sides(config);
    Ok(())
}
