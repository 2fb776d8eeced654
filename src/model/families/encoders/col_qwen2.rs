//! ColQwen2, its text alone: HF `ColQwen2ForRetrieval` (<https://arxiv.org/abs/2407.01449>).
//!
//! The text model of Qwen2-VL with a projection of each token. Its attention is causal, unlike that
//! of encoders. [`retrieval`](crate::model::config) reads its config.

use super::{Defaults, EncoderClass, EncoderHead, Family, RopeRule, WeightNames, llama, qwen2};
use crate::model::family::AxesRule;

pub(super) const FAMILY: Family = Family {
    architecture: "ColQwen2ForRetrieval",
    model_type: "colqwen2",
    models: "ColQwen2 (text)",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        rope_theta: 1_000_000.0,
        norm_eps: 1e-5,
        ..qwen2::FAMILY.defaults
    },
    rope: RopeRule { axes: AxesRule::InSections, ..llama::ROPE },
    names: WeightNames {
        embed_tokens: "vlm.embed_tokens",
        layer: "vlm.layers",
        norm: "vlm.norm",
        lm_head: "vlm.lm_head",
        ..llama::NAMES
    },
    ..qwen2::FAMILY
};

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "ColQwen2ForRetrieval",
    family: &FAMILY,
    head: EncoderHead::TokenVectors { module: "embedding_proj_layer", has_bias: true },
}];
