//! Command R: HF `CohereForCausalLM`.
//!
//! Attention and MLP read the same hidden state, after a layer norm without bias. Rotary pairs are
//! neighbours, and logits have a factor. Command R+ has norms over heads.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, LayerNorms, ModelConfig, NormKind,
    NormRule, PositionRule, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "CohereForCausalLM",
    model_type: "cohere",
    models: "Command R, Command R+, Aya 23",
    defaults: Defaults {
        max_position_embeddings: 8_192,
        tie_word_embeddings: true,
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::Layer { has_bias: false }, eps: "layer_norm_eps" },
    head_norm: HeadNormRule::Layer,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    is_parallel: true,
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: None,
            before_mlp: None,
            after_mlp: None,
        },
        ..llama::WITH_HEAD_NORMS
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("use_qk_norm")?.unwrap_or(false) {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    scale_logits(fields, config)
}

/// Reads the factor of logits.
pub(super) fn scale_logits(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let scale = match fields.has("logit_scale") {
        true => fields.required_positive("logit_scale")?,
        false => 0.0625,
    };
    config.logits.multiplier = scale as f32;
    Ok(())
}
