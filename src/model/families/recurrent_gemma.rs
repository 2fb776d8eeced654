//! RecurrentGemma: HF `RecurrentGemmaForCausalLM`.
//!
//! Gemma with Griffin's recurrent blocks in two layers of three
//! (<https://arxiv.org/abs/2404.07839>). The others have attention with a sliding window, and one
//! half of a head rotates. Logits have a cap.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, GriffinConfig, LayerConfig,
    LayerNorms, LayerRule, Mixer, MixerKind, MlpNames, MlpRule, ModelConfig, PositionRule,
    QkvNames, RecurrentConfig, RopeScaling, WeightNames, WindowRule, gemma, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "RecurrentGemmaForCausalLM",
    model_type: "recurrent_gemma",
    models: "RecurrentGemma 2B and 9B",
    aliases: &[("attention_window_size", "sliding_window")],
    defaults: Defaults {
        num_key_value_heads: None,
        head_dim: None,
        intermediate_size: Some(7_680),
        ..gemma::FAMILY.defaults
    },
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    windows: WindowRule::Always,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    rope: llama::PARTIAL_ROPE,
    mlp: MlpRule { field: "hidden_activation", ..gemma::FAMILY.mlp },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Griffin],
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("temporal_pre_norm"),
            before_mlp: Some("channel_pre_norm"),
            ..llama::NAMES.norms
        },
        attention: AttentionNames {
            qkv: QkvNames::Separate([
                "temporal_block.q_proj",
                "temporal_block.k_proj",
                "temporal_block.v_proj",
            ]),
            o_proj: "temporal_block.o_proj",
            ..llama::NAMES.attention
        },
        mlp: MlpNames {
            inner: &["mlp_block.gate_proj", "mlp_block.up_proj"],
            down_proj: "mlp_block.down_proj",
        },
        norm: "model.final_norm",
        ..llama::NAMES
    },
    adjust,
    ..gemma::FAMILY
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const WIDTH: &str = "intermediate_size";
    // HF's class derives these from other fields.
    let mut fields = fields.without(&["head_dim", "layer_types"]);
    if !fields.has("sliding_window") {
        fields = fields.with("sliding_window", 2_048.into());
    }
    // The field counts both inner projections.
    let both = fields.size(WIDTH)?.or(family.defaults.intermediate_size);
    match both {
        Some(both) if both >= 2 => fields = fields.with(WIDTH, (both / 2).into()),
        _ => return Err(fields.invalid(WIDTH, "an integer from 2")),
    }
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    let is_recurrent = recurrent_blocks(&fields)?;
    let griffin = GriffinConfig::read(&fields, layers.first().map(LayerConfig::activation))?;
    for (layer, is_recurrent) in layers.iter_mut().zip(is_recurrent.iter().cycle()) {
        if *is_recurrent {
            layer.mixer = Mixer::Recurrent(RecurrentConfig::Griffin(griffin.clone()));
        }
    }
    Ok(layers)
}

/// Returns for each block of the period whether it is recurrent.
fn recurrent_blocks(fields: &Fields) -> Result<Vec<bool>, ConfigError> {
    const FIELD: &str = "block_types";
    let blocks = match fields.value(FIELD) {
        None => vec!["recurrent", "recurrent", "attention"],
        Some(_) => fields.texts(FIELD)?,
    };
    let blocks: Option<Vec<bool>> = blocks
        .into_iter()
        .map(|block| match block {
            "recurrent" => Some(true),
            "attention" => Some(false),
            _ => None,
        })
        .collect();
    blocks.filter(|blocks| !blocks.is_empty()).ok_or_else(|| {
        fields.invalid(FIELD, "a list of \"recurrent\" or \"attention\", at least one")
    })
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Google's first configs have the field, and HF's class always does so.
    if fields.flag("embeddings_scale_by_sqrt_dim")? == Some(false) {
        return Err(fields.invalid("embeddings_scale_by_sqrt_dim", "true"));
    }
    let ropes = config.attentions().filter_map(|attention| attention.rope.as_ref());
    if ropes.map(|rope| &rope.scaling).any(|scaling| *scaling != RopeScaling::Default) {
        return Err(fields.invalid("rope_parameters", "an object whose rope_type is \"default\""));
    }
    // HF's class rounds the factor to bfloat16.
    let factor = half::bf16::from_f64((config.hidden_size as f64).sqrt());
    config.embedding.multiplier = factor.to_f32();
    let cap = fields.positive("logits_soft_cap")?.unwrap_or(30.0);
    config.logits.soft_cap = Some(cap as f32);
    Ok(())
}
