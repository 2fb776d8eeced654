//! Jina Embeddings 3: HF `JinaEmbeddingsV3Model` (<https://arxiv.org/abs/2409.10173>), without the
//! adapters of its tasks.
//!
//! XLM-RoBERTa with rotary embeddings in place of learned positions.

use super::{
    AttentionNames, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields,
    HeadModule, LayerNorms, MlpNames, ModelConfig, PositionRule, QkvNames, WeightNames,
    attend_to_both_sides, bert, dense, llama, norm_after_sums, sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "JinaEmbeddingsV3Model",
    model_type: "jina_embeddings_v3",
    models: "Jina Embeddings 3 (its transformers form)",
    defaults: Defaults {
        intermediate_size: Some(4_096),
        max_position_embeddings: 8_194,
        rope_theta: 20_000.0,
        norm_eps: 1e-5,
        ..bert::FAMILY.defaults
    },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    names: NAMES,
    other_names: Some(&OF_THE_AUTHORS),
    adjust,
    ..bert::FAMILY
};

const NAMES: WeightNames = WeightNames {
    embed_tokens: "roberta.embeddings.word_embeddings",
    embed_norm: "roberta.embeddings.LayerNorm",
    layer: "roberta.layers",
    norms: LayerNorms {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_mlp_layernorm"),
    },
    mlp: MlpNames { inner: &["mlp.fc1"], down_proj: "mlp.fc2" },
    ..llama::NAMES
};

/// The names of the authors' folders, with which transformers also saves.
pub(super) const OF_THE_AUTHORS: WeightNames = WeightNames {
    embed_norm: "roberta.emb_ln",
    layer: "roberta.encoder.layers",
    norms: LayerNorms { after_attention: Some("norm1"), after_mlp: Some("norm2"), ..NAMES.norms },
    attention: AttentionNames {
        qkv: QkvNames::Stacked("mixer.Wqkv"),
        q_norm: None,
        k_norm: None,
        o_proj: "mixer.out_proj",
    },
    ..NAMES
};

const LAYERS: &[HeadModule] = &[dense("classifier.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass {
        architecture: "JinaEmbeddingsV3Model",
        family: &FAMILY,
        head: EncoderHead::Vectors,
    },
    EncoderClass {
        architecture: "JinaEmbeddingsV3ForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier.out_proj").behind(LAYERS)),
    },
    EncoderClass {
        architecture: "JinaEmbeddingsV3ForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    sum_embeddings(fields, config, Some(("roberta.embeddings.token_type_embeddings", 1)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
