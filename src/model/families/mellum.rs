//! Mellum 2: HF `MellumForCausalLM`.
//!
//! Qwen3-MoE whose layers may have a sliding window, and then a rotary embedding of their own.
//! Modules whose names begin with `mtp` predict several tokens a step, and are not read.

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, ModelConfig, MoeConfig,
    RopeRule, RotaryPart, Scoring, SlidingRope, WindowRule, llama, qwen3, qwen3_moe, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MellumForCausalLM",
    model_type: "mellum",
    models: "Mellum 2",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(128),
        intermediate_size: Some(7_168),
        max_position_embeddings: 131_072,
        rope_theta: 500_000.0,
        ..qwen3::FAMILY.defaults
    },
    // All layers attend to all tokens, unless `layer_types` says otherwise.
    windows: WindowRule::AllButEvery { period: 1, field: None },
    layers: LayerRule::Own(layers),
    rope: RopeRule {
        sliding: Some(SlidingRope { theta: None, default: 10_000.0 }),
        part: RotaryPart::Field { name: None, rounds_up: true },
        ..llama::ROPE
    },
    adjust,
    ..qwen3_moe::FAMILY
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const WINDOW: &str = "sliding_window";
    let fields = match fields.has(WINDOW) {
        true => fields.clone(),
        false => fields.with(WINDOW, 1_024.into()),
    };
    read_alike(&fields, family, max_position_embeddings)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(64),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(896),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    let kinds = fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())?;
    config.set_experts(fields, &moe, |layer| kinds.as_ref().is_none_or(|kinds| kinds[layer]))
}
