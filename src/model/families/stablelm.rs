//! StableLM 2 and StableLM 3B: HF `StableLmForCausalLM`.
//!
//! Llama with layer norms, and rotary embeddings of a quarter of a head
//! (<https://arxiv.org/abs/2402.17834>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, LayerNorms,
    ModelConfig, NormKind, NormRule, PositionRule, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "StableLmForCausalLM",
    model_type: "stablelm",
    models: "StableLM 2, StableLM 3B",
    aliases: &[("rope_pct", "partial_rotary_factor"), ("norm_eps", "layer_norm_eps")],
    defaults: Defaults {
        num_key_value_heads: Some(32),
        max_position_embeddings: 4_096,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("use_qkv_bias"),
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    head_norm: HeadNormRule::LayerByHead,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 25 },
    rope: llama::EVEN_PARTIAL_ROPE,
    names: WeightNames {
        attention: AttentionNames {
            q_norm: Some("self_attn.q_layernorm"),
            k_norm: Some("self_attn.k_layernorm"),
            ..llama::NAMES.attention
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("qk_layernorm")?.unwrap_or(false) {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    if fields.flag("use_parallel_residual")?.unwrap_or(false) {
        config.is_parallel = true;
        config.norms = LayerNorms { before_mlp: None, ..config.norms };
    }
    Ok(())
}
