//! Command A Plus: HF `Cohere2MoeForCausalLM`.
//!
//! Cohere 2 with experts, which are scored by softmax or sigmoid, and experts of all tokens. The
//! first layers may be dense. They then have a period of windows of their own, and positions even
//! without a window if that period is 1.

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, NormKind, Scoring, SharedExpert,
    cohere, cohere2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Cohere2MoeForCausalLM",
    model_type: "cohere2_moe",
    models: "Command A Plus",
    defaults: Defaults { head_dim: Some(128), ..cohere2::FAMILY.defaults },
    adjust,
    ..cohere2::FAMILY
};

const FIRST: &str = "first_k_dense_replace";

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    cohere::scale_logits(fields, config)?;
    // transformers does not read the layers after the last, which some checkpoints have.
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    if let Some(eps) = fields.positive("rms_norm_eps")? {
        config.norm.kind = NormKind::Rms;
        config.norm.eps = eps as f32;
    }
    let count = config.layers.len();
    let first = fields.count(FIRST)?.unwrap_or(0);
    if first > count {
        return Err(fields.invalid(FIRST, &format!("at most num_hidden_layers, {count}")));
    }
    let is_dense = fields.flags("mlp_layer_types", ["sparse", "dense"], count)?;
    let is_dense = is_dense.unwrap_or_else(|| (0..count).map(|layer| layer < first).collect());
    let period = fields.size("prefix_dense_sliding_window_pattern")?.unwrap_or(1);
    if fields.value("layer_types").is_none() {
        set_windows(fields, config, first, period)?;
    }
    for (attention, is_dense) in config.attentions().zip(&is_dense) {
        if attention.sliding_window.is_none() && !(*is_dense && period == 1) {
            attention.rope = None;
        }
    }
    let moe = experts(fields, config)?;
    if let Some(size) = fields.size("prefix_dense_intermediate_size")? {
        config.mlps().for_each(|mlp| mlp.intermediate_size = size);
    }
    config.set_experts(fields, &moe, |layer| !is_dense[layer])
}

/// Sets the windows of a model without a list: all layers but the last of each period, which are
/// counted anew after the first dense layers.
fn set_windows(
    fields: &Fields,
    config: &mut ModelConfig,
    first: usize,
    period: usize,
) -> Result<(), ConfigError> {
    let window = match fields.has("sliding_window") {
        true => fields.size("sliding_window")?,
        false => Some(4_096),
    };
    let others = fields.size("sliding_window_pattern")?.unwrap_or(4);
    for (layer, attention) in config.attentions().enumerate() {
        let (place, period) = if layer < first { (layer, period) } else { (layer - first, others) };
        let is_full = (place + 1).is_multiple_of(period);
        // Sizes are at most 2^24.
        attention.sliding_window = window.map(|window| window as u32).filter(|_| !is_full);
    }
    Ok(())
}

fn experts(fields: &Fields, config: &ModelConfig) -> Result<MoeConfig, ConfigError> {
    const SCORES: &str = "expert_selection_fn";
    const STRATEGY: &str = "shared_expert_combination_strategy";
    let is_sigmoid = match fields.text(SCORES)? {
        None | Some("softmax") => false,
        Some("sigmoid") => true,
        Some(_) => return Err(fields.invalid(SCORES, "\"softmax\" or \"sigmoid\"")),
    };
    let is_average = match fields.text(STRATEGY)? {
        None | Some("average") => true,
        Some("sum") => false,
        Some(_) => return Err(fields.invalid(STRATEGY, "\"average\" or \"sum\"")),
    };
    let dense = MoeConfig::of_dense(config);
    let num_shared = fields.count("num_shared_experts")?.unwrap_or(0);
    let shared =
        SharedExpert { intermediate_size: num_shared * dense.intermediate_size, has_gate: false };
    Ok(MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(8),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        scoring: if is_sigmoid { Scoring::Sigmoid } else { Scoring::SoftmaxOfChosen },
        renormalize: is_sigmoid && fields.flag_or("norm_topk_prob", true)?,
        shared: (num_shared > 0).then_some(shared),
        output_multiplier: if num_shared > 0 && is_average { 0.5 } else { 1.0 },
        ..dense
    })
}
