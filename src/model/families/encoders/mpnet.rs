//! MPNet: HF `MPNetModel` (<https://arxiv.org/abs/2004.09297>).
//!
//! RoBERTa without types of tokens, with the relative positions of T5 beside the learned ones.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, EncoderClass, EncoderHead, Family, Fields,
    HeadActivation, HeadModule, LayerNorms, LmTransform, MaskedLmHead, MixerKind, ModelConfig,
    PositionRule, QkvNames, WeightNames, attend_to_both_sides, bert, dense, distance_biases,
    norm_after_sums, sum_embeddings,
};

/// The rows of the table of positions that no position has, whatever `pad_token_id` is.
const OFFSET: usize = 2;

pub(super) const FAMILY: Family = Family {
    architecture: "MPNetModel",
    model_type: "mpnet",
    models: "MPNet, all-mpnet-base, multi-qa-mpnet-base",
    positions: PositionRule::AfterRows(OFFSET),
    mixers: &[MixerKind::RelativePositions],
    names: WeightNames {
        embed_tokens: "mpnet.embeddings.word_embeddings",
        embed_positions: "mpnet.embeddings.position_embeddings",
        embed_norm: "mpnet.embeddings.LayerNorm",
        layer: "mpnet.encoder.layer",
        norms: LayerNorms { after_attention: Some("attention.LayerNorm"), ..bert::NAMES.norms },
        attention: AttentionNames {
            qkv: QkvNames::Separate(["attention.attn.q", "attention.attn.k", "attention.attn.v"]),
            o_proj: "attention.attn.o",
            ..bert::NAMES.attention
        },
        lm_head: "lm_head.decoder",
        ..bert::NAMES
    },
    adjust,
    ..bert::FAMILY
};

const LAYERS: &[HeadModule] = &[dense("classifier.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "MPNetModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "MPNetForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier.out_proj").behind(LAYERS)),
    },
    EncoderClass {
        architecture: "MPNetForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
    EncoderClass {
        architecture: "MPNetForMaskedLM",
        family: &FAMILY,
        head: EncoderHead::MaskedLm(MaskedLmHead {
            transform: Some(LmTransform {
                dense: "lm_head.dense",
                bias: Bias::Always,
                activation: HeadActivation::Fixed("gelu"),
                norm: "lm_head.layer_norm",
            }),
            decoder: "lm_head.decoder",
            bias: ("lm_head", Bias::Always),
            is_tied: true,
        }),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(OFFSET);
    sum_embeddings(fields, config, None)?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    let biases = distance_biases(fields, "mpnet.encoder.relative_attention_bias", None, false)?;
    config.attentions().for_each(|attention| attention.distance_biases = Some(biases));
    Ok(())
}
