//! The families of encoders, one file each, and their classes.

mod bert;
mod deberta;
mod deepseek_bidirec;
mod distilbert;
mod electra;
mod ernie;
mod eurobert;
mod gte;
mod jina;
mod jina_5;
mod jina_bert;
mod jina_rank;
mod lfm2_bidirec;
mod llama_bidirec;
mod modernbert;
mod mpnet;
mod nomic_bert;
mod privacy_filter;
mod roberta;
mod t5;
mod ultrabert;
mod voyage;
mod xlm_flash;
mod xlm_roberta_xl;

// The vocabulary of the files in this folder.
use super::{
    AttentionNames, Bias, ConfigError, Defaults, ExpertNames, Family, Fields, HeadNormRule,
    LayerConfig, LayerNorms, LayerRule, Mixer, MixerKind, MlpNames, MlpRule, ModelConfig,
    MoeConfig, MoeNames, NormKind, NormRule, PositionRule, QkvNames, RecurrentConfig, RopeRule,
    Scoring, SlidingRope, WeightNames, WindowRule, bloom::slopes as alibi_slopes, deepseek_v3,
    gpt_oss, lfm2, llama, qwen3, read_alike,
};
use crate::model::config::{
    DisentangledConfig, DistanceBiasConfig, PositionProjection, SumProjection, TokenTypes,
};
use crate::model::encoder_class::{
    ClassHead, EncoderClass, EncoderHead, HeadActivation, HeadModule, LmTransform, MaskedLmHead,
    PoolingField, dense,
};

/// The encoders that multimodal classes have as their text models.
pub(super) const MODERNBERT: Family = modernbert::FAMILY;
pub(super) const LLAMA_BIDIREC: Family = llama_bidirec::FAMILY;
pub(super) const ULTRABERT: Family = ultrabert::FAMILY;

/// The classes of all encoders.
pub(in crate::model) fn classes() -> impl Iterator<Item = EncoderClass> {
    let all = [
        bert::CLASSES,
        roberta::CLASSES,
        distilbert::CLASSES,
        mpnet::CLASSES,
        modernbert::CLASSES,
        eurobert::CLASSES,
        llama_bidirec::CLASSES,
        nomic_bert::CLASSES,
        gte::CLASSES,
        jina_bert::CLASSES,
        jina::CLASSES,
        xlm_flash::CLASSES,
        t5::CLASSES,
        electra::CLASSES,
        ernie::CLASSES,
        xlm_roberta_xl::CLASSES,
        deberta::CLASSES,
        jina_5::CLASSES,
        voyage::CLASSES,
        jina_rank::CLASSES,
        privacy_filter::CLASSES,
        lfm2_bidirec::CLASSES,
        deepseek_bidirec::CLASSES,
        ultrabert::CLASSES,
    ];
    all.into_iter().flatten().copied()
}

/// A family that a field tells from the one that `architectures` names.
struct Variant {
    named: &'static Family,
    field: &'static str,
    value: &'static str,
    family: &'static Family,
}

const VARIANTS: &[Variant] = &[
    Variant {
        named: &nomic_bert::FAMILY,
        field: "activation_function",
        value: nomic_bert::UNGATED_ACTIVATION,
        family: &nomic_bert::UNGATED,
    },
    // Models of the class of ColBERT's authors.
    Variant {
        named: &bert::FAMILY,
        field: "position_embedding_type",
        value: jina_bert::POSITIONS,
        family: &jina_bert::FAMILY,
    },
    Variant {
        named: &bert::FAMILY,
        field: "position_embedding_type",
        value: xlm_flash::POSITIONS,
        family: &xlm_flash::FAMILY,
    },
    Variant {
        named: &roberta::XLM,
        field: "position_embedding_type",
        value: xlm_flash::POSITIONS,
        family: &xlm_flash::FAMILY,
    },
];

/// Returns the family of a model, of which `named` has the entry of `architectures`.
pub(in crate::model) fn of_fields(
    named: &'static Family,
    fields: &Fields,
) -> Result<&'static Family, ConfigError> {
    for variant in VARIANTS.iter().filter(|variant| variant.named == named) {
        if fields.text(variant.field)? == Some(variant.value) {
            return Ok(variant.family);
        }
    }
    Ok(named)
}

/// Returns whether the attention of a class is causal, unlike that of encoders.
pub(in crate::model) fn is_causal(class: &EncoderClass) -> bool {
    [&jina_5::FAMILY, &jina_rank::FAMILY].contains(&class.family)
}

/// Returns the models of a class whose code is in no library. They are compared with the formulas
/// of that code.
pub(in crate::model) fn of_authors(class: &EncoderClass) -> Option<&'static str> {
    match class.architecture {
        "NomicBertModel" => Some(nomic_bert::UNGATED.models),
        "HF_ColBERT" => Some("JinaColBERT"),
        "XLMRobertaModel" => Some(xlm_flash::FAMILY.models),
        _ if [&jina_bert::FAMILY, &xlm_flash::FAMILY].contains(&class.family) => Some("all models"),
        _ => None,
    }
}

/// Makes all attention that to both sides. A window then has tokens on each side.
fn attend_to_both_sides(config: &mut ModelConfig) {
    config.attentions().for_each(|attention| attention.is_causal = false);
    // The embedding is the only table of the vocabulary that an encoder reads.
    config.tie_word_embeddings = true;
    config.has_lm_head = false;
}

/// Sums embeddings, learned positions and types of tokens, and normalises the sum.
fn sum_embeddings(
    fields: &Fields,
    config: &mut ModelConfig,
    token_types: Option<(&'static str, usize)>,
) -> Result<(), ConfigError> {
    config.embedding.has_norm = true;
    config.embedding.is_summed_before_norm = true;
    if let Some((module, default)) = token_types {
        let count = fields.count("type_vocab_size")?.unwrap_or(default);
        config.embedding.token_types = (count > 0).then_some(TokenTypes { module, count });
    }
    Ok(())
}

/// Puts the norms of a layer behind its sums, as the first transformers had them.
fn norm_after_sums(config: &mut ModelConfig) {
    config.is_post_norm = true;
    config.has_final_norm = false;
}

/// Reads the biases of scores by distances, whose table is the weight of `module`. Without a field
/// for the distance from which on all have the last bucket, it is 128. With `is_causal`, all
/// buckets are for keys before the query.
pub(in crate::model) fn distance_biases(
    fields: &Fields,
    module: &'static str,
    distance_field: Option<&'static str>,
    is_causal: bool,
) -> Result<DistanceBiasConfig, ConfigError> {
    const BUCKETS: &str = "relative_attention_num_buckets";
    let num_buckets = fields.size(BUCKETS)?.unwrap_or(32);
    if num_buckets < 4 {
        return Err(fields.invalid(BUCKETS, "at least 4: two for each side"));
    }
    let given = distance_field.map(|field| fields.size(field)).transpose()?.flatten();
    let max_distance = given.unwrap_or(128);
    // Distances below this have a bucket each. The ranges of the others grow up to the largest.
    let (share, exact) = match is_causal {
        true => ("half", num_buckets / 2),
        false => ("a quarter", num_buckets / 4),
    };
    match distance_field {
        _ if max_distance > exact => {}
        Some(field) if given.is_some() => {
            let expected = format!("more than {exact}, {share} of {BUCKETS}");
            return Err(fields.invalid(field, &expected));
        }
        _ => {
            let limit = num_buckets / exact * max_distance;
            return Err(fields.invalid(BUCKETS, &format!("less than {limit}")));
        }
    }
    Ok(DistanceBiasConfig { module, num_buckets, max_distance, is_causal })
}

/// Refuses a boolean that is not `expected`.
fn require_flag(fields: &Fields, field: &str, expected: bool) -> Result<(), ConfigError> {
    match fields.flag(field)? {
        Some(value) if value != expected => Err(fields.invalid(field, &expected.to_string())),
        _ => Ok(()),
    }
}

/// Refuses a number that is not `expected`.
fn require_number(fields: &Fields, field: &str, expected: f64) -> Result<(), ConfigError> {
    match fields.number(field)? {
        Some(value) if value != expected => Err(fields.invalid(field, &expected.to_string())),
        _ => Ok(()),
    }
}

/// Refuses a text that is not `expected`.
fn require_text(fields: &Fields, field: &str, expected: &str) -> Result<(), ConfigError> {
    match fields.text(field)? {
        Some(value) if value != expected => Err(fields.invalid(field, &format!("{expected:?}"))),
        _ => Ok(()),
    }
}
