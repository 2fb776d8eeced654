//! OLMo Hybrid: HF `OlmoHybridForCausalLM`.
//!
//! OLMo 2's attention in every fourth layer, usually without positions. The others have norms
//! before their parts, and a gated delta rule (<https://arxiv.org/abs/2412.06464>). Its changes may
//! turn a state around (<https://arxiv.org/abs/2411.12537>).

use serde_json::Value;

use super::{
    ConfigError, Defaults, DeltaNetConfig, DeltaNetModules, Family, Fields, LayerConfig,
    LayerNorms, LayerRule, MixerKind, ModelConfig, OtherNorms, RecurrentConfig, StateLayers, llama,
    olmo2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "OlmoHybridForCausalLM",
    model_type: "olmo_hybrid",
    models: "OLMo Hybrid",
    defaults: Defaults { max_position_embeddings: 65_536, ..llama::DEFAULTS },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::DeltaNet],
    adjust,
    ..olmo2::FAMILY
};

/// The norms of layers with a delta rule. The classes of transformers and vLLM have Llama's names.
const OF_STATES: LayerNorms = LayerNorms {
    before_attention: Some("attention_layer_norm"),
    after_attention: None,
    before_mlp: Some("feedforward_layer_norm"),
    after_mlp: None,
};

/// The number added to the mean squares of outputs, whatever the config says.
const NORM_EPS: f32 = 1e-5;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let is_attention = |layer: usize| match count {
        0..4 => layer + 1 == count,
        _ => (layer + 1).is_multiple_of(4),
    };
    let by_default = |layer: usize| !is_attention(layer);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let with_sizes = with_sizes(fields)?;
    let beta_max = if fields.flag_or("linear_allow_neg_eigval", true)? { 2.0 } else { 1.0 };
    let delta_net = |_, layer: &LayerConfig| {
        let config = DeltaNetConfig::read(&with_sizes, layer.activation(), DeltaNetModules::Each)?;
        let norm_eps = Some(NORM_EPS);
        Ok(RecurrentConfig::DeltaNet(DeltaNetConfig { beta_max, norm_eps, ..config }))
    };
    let mut layers = states.read(fields, family, max_position_embeddings, delta_net)?;
    if !has_positions(fields)? {
        let attentions = layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut());
        attentions.for_each(|attention| attention.rope = None);
    }
    Ok(layers)
}

/// Returns the fields with the class's defaults of the sizes of the delta rule.
fn with_sizes(fields: &Fields) -> Result<Fields, ConfigError> {
    let (heads, hidden) =
        (fields.required_size("num_attention_heads")?, fields.required_size("hidden_size")?);
    let mut own = fields.clone();
    for field in ["linear_num_key_heads", "linear_num_value_heads"] {
        if own.value(field).is_none() {
            own = own.with(field, Value::from(heads));
        }
    }
    if own.value("linear_key_head_dim").is_none() {
        let key_heads = own.required_size("linear_num_key_heads")?;
        own = own.with("linear_key_head_dim", Value::from(3 * hidden / 4 / key_heads));
    }
    if own.value("linear_value_head_dim").is_none() {
        let key_dim = own.required_size("linear_key_head_dim")?;
        own = own.with("linear_value_head_dim", Value::from(2 * key_dim));
    }
    Ok(own)
}

/// Returns whether queries and keys depend on positions. A null base of wavelengths turns that
/// off, as in the published checkpoints.
fn has_positions(fields: &Fields) -> Result<bool, ConfigError> {
    const BASE: &str = "rope_theta";
    let is_null = |fields: &Fields| fields.has(BASE) && fields.value(BASE).is_none();
    Ok(match fields.rope()? {
        Some(parameters) if parameters.has(BASE) => !is_null(&parameters),
        _ => !is_null(fields),
    })
}

fn adjust(_: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let of_class = llama::NAMES.norms;
    config.other_norms = Some(OtherNorms::OfStates { norms: OF_STATES, of_class });
    Ok(())
}
