//! MiniCPM 3: HF `MiniCPM3ForCausalLM`.
//!
//! DeepSeek V2's attention in a dense model. Embeddings, the outputs of layers and logits have
//! factors.

use super::{
    ConfigError, Defaults, Family, Fields, LatentRule, ModelConfig, PositionRule, deepseek_v2,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MiniCPM3ForCausalLM",
    model_type: "minicpm3",
    models: "MiniCPM 3",
    aliases: &[],
    defaults: Defaults {
        max_position_embeddings: 32_768,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    latent: Some(&LatentRule {
        q_lora_rank: Some(768),
        kv_lora_rank: 256,
        qk_nope_head_dim: 64,
        qk_rope_head_dim: 32,
        v_head_dim: None,
        has_rope_interleave: false,
        names: deepseek_v2::LATENT,
    }),
    mlp_bias: llama::FAMILY.mlp_bias,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    adjust,
    ..deepseek_v2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.multiplier = fields.positive("scale_emb")?.unwrap_or(12.0) as f32;
    // Null is a factor of 1. Only a config without the field takes the default.
    let depth = match fields.has("scale_depth") {
        true => fields.positive("scale_depth")?,
        false => Some(1.4),
    };
    let layers = (config.layers.len() as f64).sqrt();
    config.residual_multiplier = depth.map_or(1.0, |depth| (depth / layers) as f32);
    let base = match fields.has("dim_model_base") {
        true => fields.size("dim_model_base")?,
        false => Some(256),
    };
    let base = base.unwrap_or(config.hidden_size);
    config.logits.divisor = (config.hidden_size as f64 / base as f64) as f32;
    Ok(())
}
