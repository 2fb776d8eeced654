//! Ling 3.0: `BailingMoeV3ForCausalLM` of vLLM, HF `BailingHybridForCausalLM`.
//!
//! Kimi's delta rule (<https://arxiv.org/abs/2510.26692>), and DeepSeek V3's latent attention in
//! the last layer of each group. That multiplies the output of each head by a gate. Experts are
//! those of DeepSeek V3.

use playhouse_kernels::KimiDecay;
use serde_json::Value;

use super::deepseek_v3::Experts;
use super::{
    AttentionNames, ConfigError, Defaults, Family, Fields, KimiDeltaConfig, KvNames, LatentNames,
    LatentRule, LayerConfig, LayerRule, Mixer, MixerKind, ModelConfig, MoeNames, RecurrentConfig,
    StateLayers, WeightNames, deepseek_v2, deepseek_v3, kimi_linear, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BailingMoeV3ForCausalLM",
    model_type: "bailing_hybrid",
    other_model_types: &["bailing_moe_v3"],
    models: "Ling 3.0",
    aliases: &[
        ("model_max_length", "max_position_embeddings"),
        ("moe_renormalize", "norm_topk_prob"),
        ("num_expert_group", "n_group"),
        ("num_experts_per_token", "num_experts_per_tok"),
        ("num_shared_experts", "n_shared_experts"),
        ("num_local_experts", "num_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults {
        intermediate_size: Some(6_144),
        max_position_embeddings: 262_144,
        rope_theta: 6_000_000.0,
        ..llama::DEFAULTS
    },
    latent: Some(&LatentRule {
        q_lora_rank: None,
        has_rope_interleave: false,
        names: LatentNames {
            q_proj: "attention.q_proj",
            q_a_proj: "attention.q_a_proj",
            q_a_norm: "attention.q_a_layernorm",
            q_b_proj: "attention.q_b_proj",
            kv_a_proj: "attention.kv_a_proj_with_mqa",
            kv_a_norm: "attention.kv_a_layernorm",
            kv_b_proj: KvNames::One("attention.kv_b_proj"),
        },
        ..deepseek_v3::LATENT
    }),
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Latent, MixerKind::KimiDelta],
    names: WeightNames {
        embed_tokens: "model.word_embeddings",
        attention: AttentionNames { o_proj: "attention.dense", ..llama::NAMES.attention },
        moe: MoeNames { correction_bias: "mlp.gate.expert_bias", ..llama::MOE },
        ..llama::NAMES
    },
    other_names: None,
    adjust,
    ..kimi_linear::FAMILY
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let group = fields.size("layer_group_size")?.unwrap_or(6);
    let by_default = |layer: usize| !(layer + 1).is_multiple_of(group);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let delta = |_, layer: &LayerConfig| read(fields, layer).map(RecurrentConfig::Kimi);
    let mut layers = states.read(fields, family, max_position_embeddings, delta)?;
    for layer in &mut layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.gate = Some("attention.g_proj");
        }
    }
    Ok(layers)
}

/// Reads the delta rule of all layers that have one.
fn read(fields: &Fields, layer: &LayerConfig) -> Result<KimiDeltaConfig, ConfigError> {
    const BOUND: &str = "kda_lower_bound";
    let bound = fields.number(BOUND)?.unwrap_or(-5.0);
    if bound >= 0.0 {
        return Err(fields.invalid(BOUND, "a number below 0"));
    }
    // transformers writes the first names, and the width of a latent's key as `head_dim`.
    let size = |first: &str, second: &str| match fields.size(first)? {
        None => fields.size(second),
        size => Ok(size),
    };
    let num_heads = size("linear_num_heads", "num_attention_heads")?;
    let config = KimiDeltaConfig {
        num_heads: num_heads.unwrap_or(32),
        head_dim: size("linear_head_dim", "head_dim")?.unwrap_or(128),
        kernel: size("linear_conv_kernel_dim", "short_conv_kernel_size")?.unwrap_or(4),
        activation: layer.activation(),
        decay: match fields.flag_or("kda_safe_gate", true)? {
            true => KimiDecay::Bounded(bound as f32),
            false => KimiDecay::Softplus,
        },
        names: ["attention", "dense"],
        has_low_rank_gates: false,
    };
    config.checked(fields, "head_dim")
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if config.tie_word_embeddings {
        return Err(fields.invalid("tie_word_embeddings", "false: HF's class ties nothing"));
    }
    for field in ["expert_swiglu_limit_list", "share_expert_swiglu_limit_list"] {
        let mut limits = fields.value(field).and_then(Value::as_array).into_iter().flatten();
        if limits.any(|limit| limit.as_f64() != Some(0.0) && !limit.is_null()) {
            return Err(fields.invalid(field, "null or zeros: limits of gates are not supported"));
        }
    }
    let defaults =
        Experts { num_experts: 512, top_k: 8, intermediate_size: 768, groups: (8, 4), scale: 2.5 };
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => deepseek_v2::set_experts(fields, config, &moe, 2),
    }
}
