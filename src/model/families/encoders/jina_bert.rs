//! Jina Embeddings 2: the class `JinaBertModel` in its authors' folders
//! (<https://arxiv.org/abs/2310.19923>), and JinaColBERT 1.
//!
//! BERT with ALiBi on both sides in place of learned positions, and a gated feed-forward part. In
//! the model for code, the attention has norms over all heads of queries and keys, and adds the
//! residual stream twice.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family,
    Fields, HeadModule, HeadNormRule, LayerNorms, MixerKind, MlpNames, MlpRule, ModelConfig,
    WeightNames, alibi_slopes, attend_to_both_sides, bert, dense, norm_after_sums, require_flag,
    sum_embeddings,
};

/// The value of `position_embedding_type` of these models.
pub(super) const POSITIONS: &str = "alibi";

pub(super) const FAMILY: Family = Family {
    architecture: "JinaBertModel",
    models: "Jina Embeddings 2, also for code, JinaColBERT 1, Jina Reranker 1",
    defaults: Defaults { max_position_embeddings: 512, ..bert::FAMILY.defaults },
    mlp_bias: Bias::Never,
    head_norm: HeadNormRule::LayerAcrossHeads,
    mixers: &[MixerKind::RelativePositions],
    mlp: MlpRule { is_gated: true, ..bert::FAMILY.mlp },
    names: NAMES,
    other_names: Some(&OF_CODE),
    adjust,
    ..bert::FAMILY
};

const NAMES: WeightNames = WeightNames {
    norms: LayerNorms {
        before_attention: None,
        after_attention: Some("attention.output.LayerNorm"),
        before_mlp: None,
        after_mlp: Some("mlp.layernorm"),
    },
    mlp: MlpNames { inner: &["mlp.gated_layers"], down_proj: "mlp.wo" },
    ..bert::NAMES
};

/// The names of the model for code.
const OF_CODE: WeightNames = WeightNames {
    norms: LayerNorms {
        after_attention: Some("layer_norm_1"),
        after_mlp: Some("layer_norm_2"),
        ..NAMES.norms
    },
    attention: AttentionNames {
        q_norm: Some("attention.self.layer_norm_q"),
        k_norm: Some("attention.self.layer_norm_k"),
        ..NAMES.attention
    },
    attention_norm: Some("attention.output.LayerNorm"),
    mlp: MlpNames { inner: &["mlp.up_gated_layer"], down_proj: "mlp.down_layer" },
    is_gate_last: true,
    ..NAMES
};

const POOLER: &[HeadModule] = &[dense("bert.pooler.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "JinaBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    // The published folders have this class, and serve vectors.
    EncoderClass {
        architecture: "JinaBertForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::Vectors,
    },
    EncoderClass {
        architecture: "JinaBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FORM: &str = "feed_forward_type";
    require_flag(fields, "is_decoder", false)?;
    // Without the field, the class has learned positions.
    if fields.text("position_embedding_type")? != Some(POSITIONS) {
        return Err(fields.invalid("position_embedding_type", "\"alibi\""));
    }
    let activation = match fields.text(FORM)? {
        Some("geglu") => "gelu",
        Some("reglu") => "relu",
        _ => return Err(fields.invalid(FORM, "\"geglu\" or \"reglu\"")),
    };
    config.set_activation(activation);
    config.mlps().for_each(|mlp| mlp.down_bias = true);
    for attention in config.attentions() {
        attention.alibi = Some(alibi_slopes(attention.num_heads).into());
    }
    sum_embeddings(fields, config, Some(("bert.embeddings.token_type_embeddings", 2)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
