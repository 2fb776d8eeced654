//! GTE 1.5 and multilingual GTE: HF `GteModel`, and the class `NewModel` in its authors' folders
//! (<https://arxiv.org/abs/2407.19669>).
//!
//! BERT with rotary embeddings in place of learned positions, and a gated feed-forward part, of
//! which the last matrix alone has a bias. The folders of the authors have names of their own.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family,
    Fields, HeadActivation, HeadModule, LayerNorms, LmTransform, MaskedLmHead, MlpNames, MlpRule,
    ModelConfig, PositionRule, QkvNames, WeightNames, attend_to_both_sides, bert, dense, llama,
    norm_after_sums, require_flag, require_text, sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GteModel",
    model_type: "gte",
    models: "GTE 1.5, multilingual GTE, Snowflake Arctic Embed 2 medium",
    defaults: Defaults {
        max_position_embeddings: 8_192,
        rope_theta: 160_000.0,
        ..bert::FAMILY.defaults
    },
    mlp_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    mlp: MlpRule { is_gated: true, ..bert::FAMILY.mlp },
    names: NAMES,
    other_names: Some(&OF_THE_AUTHORS),
    adjust,
    ..bert::FAMILY
};

const NAMES: WeightNames = WeightNames {
    embed_tokens: "gte.embeddings.word_embeddings",
    embed_norm: "gte.embeddings.LayerNorm",
    layer: "gte.layers",
    norms: LayerNorms {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_mlp_layernorm"),
    },
    ..llama::NAMES
};

const OF_THE_AUTHORS: WeightNames = WeightNames {
    layer: "gte.encoder.layer",
    norms: LayerNorms {
        after_attention: Some("attn_ln"),
        after_mlp: Some("mlp_ln"),
        ..NAMES.norms
    },
    attention: AttentionNames {
        qkv: QkvNames::Stacked("attention.qkv_proj"),
        q_norm: None,
        k_norm: None,
        o_proj: "attention.o_proj",
    },
    mlp: MlpNames { inner: &["mlp.up_gate_proj"], down_proj: "mlp.down_proj" },
    is_gate_last: true,
    ..NAMES
};

/// The same models by the class of their authors.
const NEW: Family = Family {
    architecture: "NewModel",
    model_type: "new",
    names: WeightNames {
        embed_tokens: "new.embeddings.word_embeddings",
        embed_norm: "new.embeddings.LayerNorm",
        layer: "new.encoder.layer",
        ..OF_THE_AUTHORS
    },
    other_names: None,
    adjust: adjust_new,
    ..FAMILY
};

const POOLER: &[HeadModule] = &[dense("gte.pooler.dense", "tanh")];
const NEW_POOLER: &[HeadModule] = &[dense("new.pooler.dense", "tanh")];

const fn sequence(layers: &'static [HeadModule]) -> EncoderHead {
    EncoderHead::Sequence(ClassHead::plain("classifier").behind(layers))
}

const fn class(
    architecture: &'static str,
    family: &'static Family,
    head: EncoderHead,
) -> EncoderClass {
    EncoderClass { architecture, family, head }
}

const TOKENS: EncoderHead = EncoderHead::Tokens(ClassHead::plain("classifier"));

const MASKED_LM: EncoderHead = EncoderHead::MaskedLm(MaskedLmHead {
    transform: Some(LmTransform {
        dense: "lm_head.dense",
        bias: Bias::Always,
        activation: HeadActivation::Fixed("gelu"),
        norm: "lm_head.layer_norm",
    }),
    decoder: "lm_head.decoder",
    bias: ("lm_head.decoder", Bias::Always),
    is_tied: true,
});

pub(super) const CLASSES: &[EncoderClass] = &[
    class("GteModel", &FAMILY, EncoderHead::Vectors),
    class("GteForSequenceClassification", &FAMILY, sequence(POOLER)),
    class("GteForTokenClassification", &FAMILY, TOKENS),
    class("GteForMaskedLM", &FAMILY, MASKED_LM),
    class("NewModel", &NEW, EncoderHead::Vectors),
    class("NewForSequenceClassification", &NEW, sequence(NEW_POOLER)),
    class("NewForTokenClassification", &NEW, TOKENS),
    // vLLM's names of the same classes, which its documentation gives in `--hf-overrides`.
    class("GteNewModel", &NEW, EncoderHead::Vectors),
    class("GteNewForSequenceClassification", &NEW, sequence(NEW_POOLER)),
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    of_gte(fields, config, "gte.embeddings.token_type_embeddings")
}

fn adjust_new(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    of_gte(fields, config, "new.embeddings.token_type_embeddings")
}

fn of_gte(
    fields: &Fields,
    config: &mut ModelConfig,
    token_types: &'static str,
) -> Result<(), ConfigError> {
    // Fields of the authors' code, whose other values change the results.
    require_flag(fields, "logn_attention_scale", false)?;
    require_flag(fields, "pack_qkv", true)?;
    require_text(fields, "position_embedding_type", "rope")?;
    require_text(fields, "layer_norm_type", "layer_norm")?;
    sum_embeddings(fields, config, Some((token_types, 1)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    config.mlps().for_each(|mlp| mlp.down_bias = true);
    Ok(())
}
