//! Phi-1, Phi-1.5 and Phi-2: HF `PhiForCausalLM`.
//!
//! Attention and MLP read the same hidden state. Every projection has a bias, also the output layer
//! (<https://arxiv.org/abs/2309.05463>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, LayerNorms,
    MlpNames, MlpRule, ModelConfig, NormKind, NormRule, PositionRule, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "PhiForCausalLM",
    model_type: "phi",
    models: "Phi-1, Phi-1.5, Phi-2",
    defaults: Defaults { norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    head_norm: HeadNormRule::LayerBiased,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    rope: llama::EVEN_PARTIAL_ROPE,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "gelu_new" },
    is_parallel: true,
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: None,
            before_mlp: None,
            after_mlp: None,
        },
        attention: AttentionNames {
            q_norm: Some("self_attn.q_layernorm"),
            k_norm: Some("self_attn.k_layernorm"),
            o_proj: "self_attn.dense",
            ..llama::NAMES.attention
        },
        mlp: MlpNames { inner: &["mlp.fc1"], down_proj: "mlp.fc2" },
        norm: "model.final_layernorm",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("qk_layernorm")?.unwrap_or(false) {
        config.attentions().for_each(|attention| attention.head_norm = None);
    }
    config.logits.has_bias = true;
    Ok(())
}
