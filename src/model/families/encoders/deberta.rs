//! DeBERTa: HF `DebertaModel`, and for v2 and v3 `DebertaV2Model`
//! (<https://arxiv.org/abs/2006.03654>, <https://arxiv.org/abs/2111.09543>).
//!
//! BERT with terms of scores by contents and positions in the place of learned positions. In the
//! first version, each distance has a row of its own, and keys have no bias.

use serde_json::Value;

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, DisentangledConfig, EncoderClass,
    EncoderHead, Family, Fields, HeadActivation, HeadModule, MixerKind, ModelConfig,
    PositionProjection, QkvNames, WeightNames, attend_to_both_sides, bert, norm_after_sums,
    require_flag, sum_embeddings,
};

/// The table of positions.
const TABLE: &str = "deberta.encoder.rel_embeddings";
/// The field of the distance from which on all have the same row.
const DISTANCE: &str = "max_relative_positions";

pub(super) const FAMILY: Family = Family {
    architecture: "DebertaV2Model",
    model_type: "deberta-v2",
    models: "DeBERTa 2 and 3, mDeBERTa, mxbai-rerank 1",
    aliases: &[("attention_head_size", "head_dim")],
    defaults: Defaults { norm_eps: 1e-7, intermediate_size: Some(6_144), ..bert::FAMILY.defaults },
    mixers: &[MixerKind::Disentangled],
    names: WeightNames {
        embed_tokens: "deberta.embeddings.word_embeddings",
        embed_positions: "deberta.embeddings.position_embeddings",
        embed_norm: "deberta.embeddings.LayerNorm",
        layer: "deberta.encoder.layer",
        attention: AttentionNames {
            qkv: QkvNames::Separate([
                "attention.self.query_proj",
                "attention.self.key_proj",
                "attention.self.value_proj",
            ]),
            ..bert::NAMES.attention
        },
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

/// The first version.
pub(super) const FIRST: Family = Family {
    architecture: "DebertaModel",
    model_type: "deberta",
    models: "DeBERTa",
    aliases: bert::FAMILY.aliases,
    defaults: Defaults { intermediate_size: Some(3_072), ..FAMILY.defaults },
    qkv_bias: Bias::Never,
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Grouped("attention.self.in_proj"),
            ..FAMILY.names.attention
        },
        ..FAMILY.names
    },
    adjust: adjust_first,
    ..FAMILY
};

/// HF `ContextPooler`.
const POOLER: &[HeadModule] = &[HeadModule::Dense {
    module: "pooler.dense",
    bias: Bias::Always,
    activation: HeadActivation::Field("pooler_hidden_act", "gelu"),
}];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "DebertaV2Model", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "DebertaV2ForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
    EncoderClass {
        architecture: "DebertaV2ForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass { architecture: "DebertaModel", family: &FIRST, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "DebertaForSequenceClassification",
        family: &FIRST,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
    EncoderClass {
        architecture: "DebertaForTokenClassification",
        family: &FIRST,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // HF `ConvLayer`, which DeBERTa v2 xlarge and xxlarge have.
    if fields.count("conv_kernel_size")?.is_some_and(|size| size > 0) {
        return Err(fields.invalid("conv_kernel_size", "0: convolutions are not supported"));
    }
    let terms = terms(fields, config.max_position_embeddings)?;
    adjust_with(fields, config, terms)
}

fn adjust_first(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Matrices between the scores of heads, and between their weights.
    require_flag(fields, "talking_head", false)?;
    let span = above_0(fields, DISTANCE)?.unwrap_or(config.max_position_embeddings);
    let [keys, queries] = kinds(fields)?;
    let module = |name: &'static str, has_bias: bool| PositionProjection::Module { name, has_bias };
    let terms = DisentangledConfig {
        table: TABLE,
        norm: None,
        span,
        position_buckets: None,
        max_distance: span,
        biases: Some(["attention.self.q_bias", "attention.self.v_bias"]),
        keys: keys.then(|| module("attention.self.pos_proj", false)),
        queries: queries.then(|| module("attention.self.pos_q_proj", true)),
    };
    adjust_with(fields, config, terms)
}

/// Adjusts what both versions have.
fn adjust_with(
    fields: &Fields,
    config: &mut ModelConfig,
    terms: DisentangledConfig,
) -> Result<(), ConfigError> {
    // By default, the class has no relative positions. All published models have them.
    if fields.flag("relative_attention")? != Some(true) {
        return Err(fields.invalid("relative_attention", "true"));
    }
    for field in ["embedding_size", "pooler_hidden_size"] {
        if fields.size(field)?.is_some_and(|size| size != config.hidden_size) {
            return Err(fields.invalid(field, "hidden_size"));
        }
    }
    require_flag(fields, "is_decoder", false)?;
    if config.attentions().any(|attention| attention.num_kv_heads != attention.num_heads) {
        return Err(fields.invalid("num_key_value_heads", "num_attention_heads"));
    }
    if fields.flag_or("position_biased_input", true)? {
        config.embedding.learned_positions = Some(0);
    }
    let types = ("deberta.embeddings.token_type_embeddings", 0);
    sum_embeddings(fields, config, Some(types))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    let num_terms = 1 + usize::from(terms.keys.is_some()) + usize::from(terms.queries.is_some());
    for attention in config.attentions() {
        attention.disentangled = Some(terms);
        attention.scale = ((attention.head_dim * num_terms) as f32).sqrt().recip();
    }
    config.adapters_refused = Some("its keys and queries of positions are computed at the start");
    Ok(())
}

/// Reads the terms of scores of the later versions.
fn terms(fields: &Fields, positions: usize) -> Result<DisentangledConfig, ConfigError> {
    const BUCKETS: &str = "position_buckets";
    let max_distance = above_0(fields, DISTANCE)?.unwrap_or(positions);
    let position_buckets = above_0(fields, BUCKETS)?;
    if let Some(buckets) = position_buckets {
        if buckets < 4 {
            return Err(fields.invalid(BUCKETS, "at least 4"));
        }
        if max_distance <= buckets / 2 + 1 {
            let expected = format!("less than twice {DISTANCE}, {max_distance}");
            return Err(fields.invalid(BUCKETS, &expected));
        }
    }
    let shares = fields.flag("share_att_key")?.unwrap_or(false);
    let projection = |name: &'static str| match shares {
        true => PositionProjection::OfTokens,
        false => PositionProjection::Module { name, has_bias: true },
    };
    let [keys, queries] = kinds(fields)?;
    let norms = fields.text("norm_rel_ebd")?.unwrap_or("none").to_lowercase();
    let is_normed = norms.split('|').any(|norm| norm.trim() == "layer_norm");
    Ok(DisentangledConfig {
        table: TABLE,
        norm: is_normed.then_some("deberta.encoder.LayerNorm"),
        span: position_buckets.unwrap_or(max_distance),
        position_buckets,
        max_distance,
        biases: None,
        keys: keys.then(|| projection("attention.self.pos_key_proj")),
        queries: queries.then(|| projection("attention.self.pos_query_proj")),
    })
}

/// Reads whether scores have terms of the keys of positions, and of their queries.
fn kinds(fields: &Fields) -> Result<[bool; 2], ConfigError> {
    const KINDS: &str = "pos_att_type";
    let kinds: Vec<String> = match fields.value(KINDS) {
        Some(Value::String(text)) => {
            text.to_lowercase().split('|').map(|kind| kind.trim().to_owned()).collect()
        }
        _ => fields.texts(KINDS)?.into_iter().map(str::to_owned).collect(),
    };
    if kinds.is_empty() || kinds.iter().any(|kind| kind != "c2p" && kind != "p2c") {
        return Err(fields.invalid(KINDS, "\"c2p\", \"p2c\" or both"));
    }
    Ok(["c2p", "p2c"].map(|kind| kinds.iter().any(|found| found == kind)))
}

/// Reads a size. Numbers below 1 stand for none.
fn above_0(fields: &Fields, field: &str) -> Result<Option<usize>, ConfigError> {
    match fields.integer(field)? {
        Some(1..) => fields.size(field),
        _ => Ok(None),
    }
}
