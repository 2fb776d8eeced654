//! ModernBERT: HF `ModernBertModel` (<https://arxiv.org/abs/2412.13663>).
//!
//! Norms before the parts of a layer, rotary embeddings, and a gated feed-forward part. Two layers
//! of three have a window with a rotary embedding of its own. The first layer has no norm before
//! its attention, because embeddings are normalised.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family,
    Fields, HeadActivation, HeadModule, LayerNorms, LmTransform, MaskedLmHead, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PoolingField, PositionRule, QkvNames, RopeRule, SlidingRope,
    WeightNames, WindowRule, attend_to_both_sides, llama,
};

/// Tokens of a window on both sides together, without the field.
const LOCAL_ATTENTION: usize = 128;

pub(super) const FAMILY: Family = Family {
    architecture: "ModernBertModel",
    model_type: "modernbert",
    models: "ModernBERT, GTE ModernBERT, Granite Embedding R2, Nomic Embed modernbert",
    defaults: Defaults {
        intermediate_size: Some(1_152),
        max_position_embeddings: 8_192,
        tie_word_embeddings: true,
        rope_theta: 160_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::IfSet("mlp_bias"),
    windows: WindowRule::AllButFirstOf { period: 3, field: "global_attn_every_n_layers" },
    norm: NormRule { kind: NormKind::Layer { has_bias: false }, eps: "norm_eps" },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    rope: RopeRule {
        theta: "global_rope_theta",
        sliding: Some(SlidingRope { theta: Some("local_rope_theta"), default: 10_000.0 }),
        ..llama::ROPE
    },
    mlp: MlpRule { is_gated: true, field: "hidden_activation", activation: "gelu" },
    names: WeightNames {
        embed_tokens: "model.embeddings.tok_embeddings",
        embed_norm: "model.embeddings.norm",
        layer: "model.layers",
        norms: LayerNorms {
            before_attention: Some("attn_norm"),
            after_attention: None,
            before_mlp: Some("mlp_norm"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Stacked("attn.Wqkv"),
            q_norm: None,
            k_norm: None,
            o_proj: "attn.Wo",
        },
        mlp: MlpNames { inner: &["mlp.Wi"], down_proj: "mlp.Wo" },
        norm: "model.final_norm",
        lm_head: "decoder",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The layer before the classifier, and before the matrix to the vocabulary.
const DENSE: HeadModule =
    HeadModule::Dense { module: "head.dense", bias: DENSE_BIAS, activation: DENSE_ACTIVATION };
const DENSE_BIAS: Bias = Bias::IfSet("classifier_bias");
const DENSE_ACTIVATION: HeadActivation = HeadActivation::Field("classifier_activation", "gelu");

const LAYERS: &[HeadModule] = &[DENSE, HeadModule::Norm { module: "head.norm" }];

const POOLING: PoolingField =
    PoolingField { field: "classifier_pooling", default: "cls", accepted: &["cls", "mean"] };

const HEAD: ClassHead = ClassHead::plain("classifier").behind(LAYERS).pooled_by(POOLING);

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "ModernBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    // vLLM's name of the class with the module of PyLate, which is read in any case.
    EncoderClass {
        architecture: "ColBERTModernBertModel",
        family: &FAMILY,
        head: EncoderHead::Vectors,
    },
    EncoderClass {
        architecture: "ModernBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(HEAD),
    },
    EncoderClass {
        architecture: "ModernBertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(HEAD),
    },
    EncoderClass {
        architecture: "ModernBertForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::MaskedLm(MaskedLmHead {
            transform: Some(LmTransform {
                dense: "head.dense",
                bias: DENSE_BIAS,
                activation: DENSE_ACTIVATION,
                norm: "head.norm",
            }),
            decoder: "decoder",
            bias: ("decoder", Bias::UnlessUnset("decoder_bias")),
            is_tied: true,
        }),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.has_norm = true;
    config.has_first_norm = false;
    let has_bias = fields.flag("norm_bias")?.unwrap_or(false);
    config.norm.kind = NormKind::Layer { has_bias };
    // A token sees half of the window on each side, and itself.
    let window = fields.size("local_attention")?.unwrap_or(LOCAL_ATTENTION) / 2 + 1;
    for attention in config.attentions() {
        attention.sliding_window = attention.sliding_window.map(|_| window as u32);
    }
    attend_to_both_sides(config);
    Ok(())
}
