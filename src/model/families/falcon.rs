//! Falcon: HF `FalconForCausalLM`.
//!
//! Attention and MLP read the same hidden state, but not in Falcon-RW, which has ALiBi. Falcon-7B
//! has one key head, and Falcon-40B and Falcon 2 have groups of heads
//! (<https://arxiv.org/abs/2311.16867>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerNorms, MixerKind, MlpNames,
    MlpRule, ModelConfig, NormKind, NormRule, PositionRule, QkvNames, WeightNames, bloom, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "FalconForCausalLM",
    model_type: "falcon",
    other_model_types: &[GROUPED],
    models: "Falcon 7B, 40B and 180B, Falcon 2, Falcon-RW",
    aliases: &[
        ("n_embed", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("num_kv_heads", "num_key_value_heads"),
        ("n_head_kv", "num_key_value_heads"),
        ("ffn_hidden_size", "intermediate_size"),
    ],
    defaults: Defaults { tie_word_embeddings: true, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::IfSet("bias"),
    o_bias: Bias::IfSet("bias"),
    mlp_bias: Bias::IfSet("bias"),
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_epsilon" },
    mlp: MlpRule { is_gated: false, field: "activation", activation: "gelu" },
    names: WeightNames {
        embed_tokens: "transformer.word_embeddings",
        layer: "transformer.h",
        attention: AttentionNames {
            qkv: QkvNames::Grouped("self_attention.query_key_value"),
            q_norm: None,
            k_norm: None,
            o_proj: "self_attention.dense",
        },
        mlp: MlpNames { inner: &["mlp.dense_h_to_4h"], down_proj: "mlp.dense_4h_to_h" },
        norm: "transformer.ln_f",
        ..llama::NAMES
    },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    mixers: &[MixerKind::Attention, MixerKind::RoundedAlibi],
    adjust,
    ..llama::FAMILY
};

/// The type of the first Falcon-40B. That of the first Falcon-7B and Falcon-RW is
/// `RefinedWebModel`.
const GROUPED: &str = "RefinedWeb";

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.flag("alibi")?.unwrap_or(false) {
        // Slopes and biases are rounded to bfloat16, unlike those of any other family.
        let rounded = |slope: f32| half::bf16::from_f32(slope).to_f32();
        for attention in config.attentions() {
            let slopes = bloom::slopes(attention.num_heads).into_iter().map(rounded);
            attention.alibi = Some(slopes.collect());
            attention.rounds_alibi = true;
            attention.rope = None;
        }
    }
    let is_grouped = fields.text("model_type")? == Some(GROUPED);
    let is_new = fields.flag("new_decoder_architecture")?.unwrap_or(is_grouped);
    let is_multi_query = !is_new && fields.flag_or("multi_query", true)?;
    for attention in config.attentions() {
        if is_multi_query {
            attention.num_kv_heads = 1;
        } else if !is_new {
            attention.num_kv_heads = attention.num_heads;
        }
    }
    config.is_parallel = is_new || fields.flag_or("parallel_attn", true)?;
    if !config.is_parallel {
        return Ok(());
    }
    let has_two_norms = is_new
        && match fields.size("num_ln_in_parallel_attn")? {
            None | Some(2) => true,
            Some(1) => false,
            Some(_) => return Err(fields.invalid("num_ln_in_parallel_attn", "1 or 2")),
        };
    config.norms = LayerNorms {
        before_attention: Some(if has_two_norms { "ln_attn" } else { "input_layernorm" }),
        before_mlp: has_two_norms.then_some("ln_mlp"),
        ..llama::NAMES.norms
    };
    Ok(())
}
