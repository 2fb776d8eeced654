//! Persimmon: HF `PersimmonForCausalLM`.
//!
//! Layer norms, also of query and key heads, and squared ReLU without a gate
//! (<https://www.adept.ai/blog/persimmon-8b>). Half of a head rotates.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PositionRule, QkvNames, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "PersimmonForCausalLM",
    model_type: "persimmon",
    models: "Persimmon 8B",
    defaults: Defaults {
        intermediate_size: Some(16_384),
        max_position_embeddings: 16_384,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    head_norm: HeadNormRule::LayerBiased,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    rope: llama::EVEN_PARTIAL_ROPE,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "relu2" },
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Grouped("self_attn.query_key_value"),
            q_norm: Some("self_attn.q_layernorm"),
            k_norm: Some("self_attn.k_layernorm"),
            o_proj: "self_attn.dense",
        },
        mlp: MlpNames { inner: &["mlp.dense_h_to_4h"], down_proj: "mlp.dense_4h_to_h" },
        norm: "model.final_layernorm",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("qk_layernorm")?.unwrap_or(true) {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    Ok(())
}
