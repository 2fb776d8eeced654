//! DistilBERT: HF `DistilBertModel` (<https://arxiv.org/abs/1910.01108>).
//!
//! BERT without types of tokens, with names of its own.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, EncoderClass, EncoderHead, Family, Fields,
    HeadActivation, HeadModule, LayerNorms, LmTransform, MaskedLmHead, MlpNames, MlpRule,
    ModelConfig, QkvNames, WeightNames, attend_to_both_sides, bert, dense, norm_after_sums,
    sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DistilBertModel",
    model_type: "distilbert",
    models: "DistilBERT, msmarco-distilbert",
    aliases: &[
        ("dim", "hidden_size"),
        ("hidden_dim", "intermediate_size"),
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
    ],
    mlp: MlpRule { field: "activation", ..bert::FAMILY.mlp },
    names: WeightNames {
        embed_tokens: "distilbert.embeddings.word_embeddings",
        embed_positions: "distilbert.embeddings.position_embeddings",
        embed_norm: "distilbert.embeddings.LayerNorm",
        layer: "distilbert.transformer.layer",
        norms: LayerNorms {
            before_attention: None,
            after_attention: Some("sa_layer_norm"),
            before_mlp: None,
            after_mlp: Some("output_layer_norm"),
        },
        attention: AttentionNames {
            qkv: QkvNames::Separate(["attention.q_lin", "attention.k_lin", "attention.v_lin"]),
            o_proj: "attention.out_lin",
            ..bert::NAMES.attention
        },
        mlp: MlpNames { inner: &["ffn.lin1"], down_proj: "ffn.lin2" },
        lm_head: "vocab_projector",
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

const LAYERS: &[HeadModule] = &[dense("pre_classifier", "relu")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "DistilBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "DistilBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(LAYERS)),
    },
    EncoderClass {
        architecture: "DistilBertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass {
        architecture: "DistilBertForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::MaskedLm(MaskedLmHead {
            transform: Some(LmTransform {
                dense: "vocab_transform",
                bias: Bias::Always,
                activation: HeadActivation::Field("activation", "gelu"),
                norm: "vocab_layer_norm",
            }),
            decoder: "vocab_projector",
            bias: ("vocab_projector", Bias::Always),
            is_tied: true,
        }),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    // The class has no field for it.
    config.norm.eps = 1e-12;
    sum_embeddings(fields, config, None)?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
