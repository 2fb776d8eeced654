//! Trinity: HF `AfmoeForCausalLM`.
//!
//! Three layers of four have a sliding window, and the others no positions. The output of attention
//! is multiplied by a gate, and each part has a norm before it and one after it. DeepSeek V3's
//! mixture of experts is in all layers but the first ones.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerNorms,
    LayerRule, ModelConfig, MoeConfig, MoeNames, QkvNames, SharedExpert, WeightNames, WindowRule,
    llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "AfmoeForCausalLM",
    model_type: "afmoe",
    models: "Arcee Trinity Nano, Mini and Large",
    defaults: Defaults {
        head_dim: Some(128),
        intermediate_size: Some(6_144),
        max_position_embeddings: 16_384,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    windows: WindowRule::AllButEvery { period: 4, field: Some("global_attn_every_n_layers") },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: Some("post_attention_layernorm"),
            before_mlp: Some("pre_mlp_layernorm"),
            after_mlp: Some("post_mlp_layernorm"),
        },
        attention: AttentionNames {
            qkv: QkvNames::Gated {
                qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                gate: "self_attn.gate_proj",
            },
            ..llama::WITH_HEAD_NORMS.attention
        },
        moe: MoeNames {
            router: "mlp.router.gate",
            correction_bias: "mlp.expert_bias",
            ..llama::MOE
        },
        ..llama::NAMES
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
    let fields = match fields.has(WINDOW) {
        true => fields.clone(),
        false => fields.with(WINDOW, 1_024.into()),
    };
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    for attention in layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        attention.has_gate = true;
        if attention.sliding_window.is_none() {
            attention.rope = None;
        }
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Fields of the authors' code, of which HF's class has one value.
    if !matches!(fields.text("score_func")?, None | Some("sigmoid")) {
        return Err(fields.invalid("score_func", "\"sigmoid\""));
    }
    if fields.flag("route_norm")? == Some(false) {
        return Err(fields.invalid("route_norm", "true"));
    }
    if fields.size("n_group")?.is_some_and(|groups| groups != 1) {
        return Err(fields.invalid("n_group", "1"));
    }
    if fields.flag("mup_enabled")?.unwrap_or(false) {
        config.embedding.multiplier = (config.hidden_size as f64).sqrt() as f32;
    }
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_408);
    let num_shared = fields.count("num_shared_experts")?.unwrap_or(2);
    let shared =
        SharedExpert { intermediate_size: num_shared * intermediate_size, has_gate: false };
    let num_experts = fields.size("num_experts")?.unwrap_or(64);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(6),
        intermediate_size,
        renormalize: true,
        scale: fields.positive("route_scale")?.unwrap_or(1.0) as f32,
        shared: (num_shared > 0).then_some(shared),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    let first = fields.count("num_dense_layers")?.unwrap_or(1);
    config.set_experts(fields, &moe, |layer| layer >= first)
}
