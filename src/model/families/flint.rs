//! Flint: HF `FlintForCausalLM`.
//!
//! Qwen3-MoE whose heads have gpt-oss' sinks. Layers with a sliding window rotate, and the others
//! have no positions. Experts are chosen by sigmoid scores alone, beside an expert of all tokens.
//! The names of tensors are those of published checkpoints, which HF's class reads and writes.

use serde_json::{Value, json};

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, MlpNames, ModelConfig,
    MoeConfig, MoeNames, Scoring, SharedExpert, WeightNames, WindowRule, deepseek_v2, llama,
    qwen2_moe, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "FlintForCausalLM",
    model_type: "flint",
    models: "Flint",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(128),
        intermediate_size: Some(6_144),
        max_position_embeddings: 262_144,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    // `layer_types` names the layers with a window.
    windows: WindowRule::AllButEvery { period: 1, field: None },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        moe: MoeNames {
            shared: MlpNames {
                inner: &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"],
                down_proj: "mlp.shared_expert.down_proj",
            },
            ..llama::MOE
        },
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
    let mut layers = read_alike(&with_defaults(fields)?, family, max_position_embeddings)?;
    let mut without_rope = Vec::new();
    for (index, layer) in layers.iter_mut().enumerate() {
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        attention.sinks = Some("self_attn.softmax_offset");
        if attention.sliding_window.is_none() {
            attention.rope = None;
            without_rope.push(index);
        }
    }
    // vLLM's class reads the list, and HF's class the kinds of layers.
    const LISTED: &str = "no_rope_layer_indices";
    if fields.value(LISTED).is_some() {
        let mut listed = fields.indices(LISTED)?;
        listed.sort_unstable();
        if listed != without_rope {
            let expected = format!("{without_rope:?}, the layers without a window");
            return Err(fields.invalid(LISTED, &expected));
        }
    }
    Ok(layers)
}

/// Returns the fields with the window and the kinds of layers of HF `FlintConfig`.
fn with_defaults(fields: &Fields) -> Result<Fields, ConfigError> {
    const WINDOW: &str = "sliding_window";
    const USED: &str = "use_sliding_window";
    const TYPES: &str = "layer_types";
    if fields.flag(USED)? == Some(false) {
        return Err(fields.invalid(USED, "true: layer_types names the layers with a window"));
    }
    let mut own = fields.clone();
    match fields.value(WINDOW) {
        Some(_) => {}
        None if fields.has(WINDOW) => return Err(fields.invalid(WINDOW, "a positive integer")),
        None => own = own.with(WINDOW, 513.into()),
    }
    if fields.value(TYPES).is_none() {
        // The number of layers is checked where they are read.
        let count = fields.required_size("num_hidden_layers")?.min(1 << 16);
        let is_full = |layer: usize| layer < 2 || layer % 4 == 1 || layer + 1 == count;
        let kind = |layer| if is_full(layer) { "full_attention" } else { "sliding_attention" };
        own = own.with(TYPES, (0..count).map(kind).map(Value::from).collect());
    }
    Ok(own)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const DENSE: &str = "mlp_only_layers";
    // HF's class has one value of this field of vLLM's class.
    deepseek_v2::require(fields, "router_score_function", "sigmoid")?;
    let num_experts = fields.count("num_experts")?.unwrap_or(256);
    // Without experts, all layers are dense.
    if num_experts == 0 {
        return Ok(());
    }
    let shared = fields.size("shared_expert_intermediate_size")?.unwrap_or(1_024);
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(6),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(512),
        scoring: Scoring::Sigmoid,
        renormalize: fields.flag_or("norm_topk_prob", true)?,
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_dense(config)
    };
    let own = match fields.value(DENSE) {
        Some(_) => fields.clone(),
        None => fields.with(DENSE, json!([0, 1])),
    };
    config.set_experts(fields, &moe, qwen2_moe::sparse_layers(&own)?)
}
