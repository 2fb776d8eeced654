//! GPT-2: HF `GPT2LMHeadModel`.
//!
//! Learned positions, layer norms, and matrices that are stored as `[inputs, outputs]`
//! (<https://openai.com/index/better-language-models>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerNorms, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PositionRule, QkvNames, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GPT2LMHeadModel",
    model_type: "gpt2",
    models: "GPT-2 and its descendants",
    aliases: &[
        ("n_embd", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("n_positions", "max_position_embeddings"),
        ("n_inner", "intermediate_size"),
    ],
    defaults: Defaults {
        max_position_embeddings: 1_024,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    mlp: MlpRule { is_gated: false, field: "activation_function", activation: "gelu_new" },
    names: WeightNames {
        embed_tokens: "transformer.wte",
        embed_positions: "transformer.wpe",
        embed_norm: "",
        layer: "transformer.h",
        norms: LayerNorms {
            before_attention: Some("ln_1"),
            after_attention: None,
            before_mlp: Some("ln_2"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Stacked("attn.c_attn"),
            q_norm: None,
            k_norm: None,
            o_proj: "attn.c_proj",
        },
        attention_norm: None,
        mlp: MlpNames { inner: &["mlp.c_fc"], down_proj: "mlp.c_proj" },
        moe: llama::MOE,
        mamba: "",
        norm: "transformer.ln_f",
        lm_head: "lm_head",
        is_transposed: true,
        is_gate_last: false,
        layers_are_pairs: false,
        in_adapters: &[],
        renamed: &[],
        place: None,
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    if fields.flag("scale_attn_weights")? == Some(false) {
        config.attentions().for_each(|attention| attention.scale = 1.0);
    }
    if fields.flag("scale_attn_by_inverse_layer_idx")? == Some(true) {
        for (index, attention) in config.attentions().enumerate() {
            attention.scale /= (index + 1) as f32;
        }
    }
    Ok(())
}
