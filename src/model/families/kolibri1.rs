//! Kolibri: HF `Kolibri1ForCausalLM`.
//!
//! Qwen3-MoE with norms after attention and experts as well as before them. One layer of five has
//! no window and no positions. A bias is added to the logits of experts for their choice, and the
//! sigmoids of the chosen logits weigh them. The names of tensors are those of published
//! checkpoints, which HF's class reads and writes.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerNorms, LayerRule, ModelConfig,
    MoeConfig, MoeNames, Scoring, SharedExpert, WeightNames, WindowRule, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Kolibri1ForCausalLM",
    model_type: "kolibri1",
    models: "Kolibri 1",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(128),
        // No layer is dense, and HF's class has no field for the width.
        intermediate_size: Some(512),
        max_position_embeddings: 262_144,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::AllButEvery { period: 5, field: None },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: Some("post_attn_norm"),
            before_mlp: Some("post_attention_layernorm"),
            after_mlp: Some("post_ffn_norm"),
        },
        moe: MoeNames { correction_bias: "moe.router.expert_bias", ..llama::MOE },
        ..llama::WITH_HEAD_NORMS
    },
    adjust,
    ..llama::FAMILY
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const WINDOW: &str = "sliding_window";
    let own = match fields.value(WINDOW) {
        Some(_) => fields.clone(),
        // HF's class fails, whatever the kinds of layers are.
        None if fields.has(WINDOW) => return Err(fields.invalid(WINDOW, "a positive integer")),
        None => fields.with(WINDOW, 513.into()),
    };
    let mut layers = read_alike(&own, family, max_position_embeddings)?;
    for attention in layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        if attention.sliding_window.is_none() {
            attention.rope = None;
        }
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let shared = fields.size("shared_expert_intermediate_size")?.unwrap_or(512);
    let num_experts = fields.size("num_experts")?.unwrap_or(384);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(6),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(512),
        scoring: Scoring::SigmoidOfChosen,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    config.set_experts(fields, &moe, |_| true)
}
