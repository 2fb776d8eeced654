//! Gemma 4, text only: HF `Gemma4ForCausalLM`.
//!
//! Layers with a window, and layers with wider heads that attend to all tokens. Only the first
//! pairs of those turn with positions, and their values may be their keys. Values are normalised.
//! Small models have embeddings of each layer, and last layers that read the keys and values of
//! earlier ones. The 26B has experts beside each MLP. The decoder is `crate::model::gemma4`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Bias, ConfigError, Defaults, ExpertNames, Family, FeedForward, Fields, Gemma4Config,
    HeadNormRule, LayerConfig, LayerRule, ModelConfig, MoeConfig, MoeNames, NormKind, NormRule,
    PerLayerConfig, RopeRule, RotaryPart, SharedExpert, SlidingRope, WeightNames, WindowRule,
    gemma, gemma3, gemma3n, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Gemma4ForCausalLM",
    model_type: "gemma4_text",
    models: "Gemma 4, text only",
    harmless_fields: &[LAYER_FIELDS],
    aliases: &[("top_k_experts", "num_experts_per_tok")],
    defaults: Defaults {
        num_key_value_heads: Some(4),
        intermediate_size: Some(9_216),
        ..gemma3::FAMILY.defaults
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    windows: WindowRule::AllButEvery { period: PERIOD, field: None },
    norm: NormRule { kind: NormKind::Rms, eps: "rms_norm_eps" },
    head_norm: HeadNormRule::Rms,
    rope: RopeRule {
        part: RotaryPart::Proportional,
        sliding: Some(SlidingRope { theta: None, default: 10_000.0 }),
        ..gemma3::FAMILY.rope
    },
    layers: LayerRule::Own(read_layers),
    names: WeightNames {
        moe: MoeNames {
            router: "router.proj",
            experts: ExpertNames::FusedByOutput {
                inner: "experts.gate_up_proj",
                down_proj: "experts.down_proj",
            },
            shared: gemma3::FAMILY.names.mlp,
            ..gemma3::FAMILY.names.moe
        },
        ..gemma3::FAMILY.names
    },
    adjust,
    ..gemma3::FAMILY
};

/// The layers of which one attends to all tokens.
const PERIOD: usize = 6;
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";
const LAYER_TYPES: &str = "layer_types";
/// The sizes of single layers, as transformers 5.24 writes them.
pub(super) const LAYER_FIELDS: &str = "per_layer_config";

/// Reads the layers of both kinds, whose heads differ.
pub(super) fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let of_full = json!({
        "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0,
    });
    let fields = with_defaults(fields, PERIOD, of_full)?;
    let mut layers = of_two_kinds(&fields, family, max_position_embeddings, of_full_layers)?;
    cache_alike(&mut layers);
    Ok(layers)
}

/// Returns the fields for the layers that attend to all tokens, of which the list says which they
/// are.
pub(super) type OfFullLayers = fn(&Fields, &[bool]) -> Result<Fields, ConfigError>;

/// Reads layers with a window by `fields`, and the others by what `of_full` makes of them.
pub(super) fn of_two_kinds(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
    of_full: OfFullLayers,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let sliding = read_alike(fields, family, max_position_embeddings)?;
    let is_full = |layer: &LayerConfig| {
        layer.mixer.attention().is_some_and(|attention| attention.sliding_window.is_none())
    };
    let full: Vec<bool> = sliding.iter().map(is_full).collect();
    let wide = read_alike(&of_full(fields, &full)?, family, max_position_embeddings)?;
    let pairs = sliding.into_iter().zip(wide);
    Ok(pairs.map(|(sliding, wide)| if is_full(&sliding) { wide } else { sliding }).collect())
}

/// Returns the fields with the kinds of layers, and with the class's window and rotary embeddings.
/// The last of each `period` of layers attends to all tokens, with the rotary embedding
/// `rope_of_full`. The last layer is one of these, whatever the list says.
pub(super) fn with_defaults(
    fields: &Fields,
    period: usize,
    rope_of_full: Value,
) -> Result<Fields, ConfigError> {
    for field in ["rope_scaling", "rope_theta"] {
        if fields.value(field).is_some() {
            return Err(fields.invalid(field, "null: transformers reads rope_parameters alone"));
        }
    }
    let count = fields.required_size("num_hidden_layers")?;
    let kind = |layer: usize| if layer.is_multiple_of(period) { FULL } else { SLIDING };
    let mut types = match fields.value(LAYER_TYPES).map(Value::as_array) {
        Some(Some(types)) => types.clone(),
        Some(None) => return Err(fields.invalid(LAYER_TYPES, "a list of names")),
        // The number of layers is checked where they are read.
        None => (1..=count.min(1 << 16)).map(|layer| kind(layer).into()).collect(),
    };
    if let Some(last) = types.last_mut().filter(|last| **last == SLIDING) {
        *last = FULL.into();
    }
    let mut fields = fields.with(LAYER_TYPES, types.into());
    if !fields.has("sliding_window") {
        fields = fields.with("sliding_window", 512.into());
    }
    fields.or_rope(json!({
        SLIDING: { "rope_type": "default", "rope_theta": 10_000.0 }, FULL: rope_of_full,
    }))
}

/// Returns the fields with the heads of layers that attend to all tokens.
fn of_full_layers(fields: &Fields, full: &[bool]) -> Result<Fields, ConfigError> {
    if fields.has(LAYER_FIELDS) {
        return of_listed_layers(fields, full);
    }
    let width = fields.size("global_head_dim")?;
    let mut of_full = match width {
        None if fields.has("global_head_dim") => fields.without(&["head_dim"]),
        width => fields.with("head_dim", width.unwrap_or(512).into()),
    };
    let heads = fields.size("num_global_key_value_heads")?;
    if let Some(heads) = heads.filter(|_| has_keys_as_values(fields)) {
        of_full = of_full.with("num_key_value_heads", heads.into());
    }
    Ok(of_full)
}

/// Returns the same from the list of single layers' sizes, which must be those of the layers that
/// attend to all tokens.
pub(super) fn of_listed_layers(fields: &Fields, full: &[bool]) -> Result<Fields, ConfigError> {
    const SIZES: [&str; 2] = ["head_dim", "num_key_value_heads"];
    let Some(listed) = fields.nested(LAYER_FIELDS)?.filter(|listed| !listed.object().is_empty())
    else {
        return Ok(fields.clone());
    };
    let names = names_by_index(fields, &listed)?;
    let wanted = full.iter().enumerate().filter(|(_, full)| **full).map(|(layer, _)| layer);
    let first = names.values().next();
    let sizes = first.map(|first| listed.nested(first)).transpose()?.flatten();
    let first = first.and_then(|first| listed.value(first));
    let are_alike =
        wanted.eq(names.keys().copied()) && names.values().all(|name| listed.value(name) == first);
    let Some(sizes) = sizes.filter(|_| are_alike) else {
        let expected = "the same sizes for each layer of full attention, and for no other";
        return Err(fields.invalid(LAYER_FIELDS, expected));
    };
    let mut of_full = fields.clone();
    for name in sizes.object().keys() {
        let size = sizes.size(name)?.filter(|_| SIZES.contains(&name.as_str()));
        let Some(size) = size else {
            return Err(sizes.invalid(name, "head_dim and num_key_value_heads alone"));
        };
        of_full = of_full.with(name, size.into());
    }
    Ok(of_full)
}

/// Returns the names of the listed layers by their indices. transformers pads the names with zeros
/// to one length, as in "05" and "11".
fn names_by_index<'a>(
    fields: &Fields,
    listed: &'a Fields,
) -> Result<BTreeMap<usize, &'a str>, ConfigError> {
    let mut names = BTreeMap::new();
    for name in listed.object().keys() {
        let index = name.parse::<usize>().map_err(|_| {
            fields.invalid(LAYER_FIELDS, "an object whose names are the indices of layers")
        })?;
        if names.insert(index, name.as_str()).is_some() {
            return Err(fields.invalid(LAYER_FIELDS, "one entry for each layer"));
        }
    }
    Ok(names)
}

fn has_keys_as_values(fields: &Fields) -> bool {
    fields.value("attention_k_eq_v") == Some(&Value::Bool(true))
}

/// Gives all layers the same heads in the KV cache: as wide as the widest, and as many as a common
/// multiple.
pub(super) fn cache_alike(layers: &mut [LayerConfig]) {
    let attentions = || layers.iter().filter_map(|layer| layer.mixer.attention());
    let width = attentions().map(|attention| attention.cached_head_dim()).max().unwrap_or(0);
    let heads = attentions().map(|attention| attention.num_kv_heads).reduce(common_multiple);
    let heads = heads.unwrap_or(0);
    let are_alike = attentions()
        .all(|attention| (attention.num_kv_heads, attention.cached_head_dim()) == (heads, width));
    if !are_alike {
        let attentions = layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut());
        attentions.for_each(|attention| attention.cached_heads = Some((heads, width)));
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

pub(super) fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const SIDES: &str = "use_bidirectional_attention";
    let sees_images = match fields.text(SIDES)? {
        None => false,
        // Text alone is the same with it.
        Some("vision") => true,
        Some(_) => return Err(fields.invalid(SIDES, "null or \"vision\": text is causal")),
    };
    gemma::scale_embeddings(config);
    let values_are_keys = fields.flag("attention_k_eq_v")? == Some(true);
    for attention in config.attentions() {
        attention.scale = 1.0;
        attention.normalizes_values = true;
        attention.values_are_keys = values_are_keys && attention.sliding_window.is_none();
        // Tokens of an image attend to each other in layers with a window alone.
        attention.always_causal = sees_images && attention.sliding_window.is_none();
    }
    config.logits.soft_cap = fields.positive("final_logit_softcapping")?.map(|cap| cap as f32);
    gemma3n::share_keys(fields, config, 0)?;
    if fields.flag("use_double_wide_mlp")? == Some(true) {
        for layer in &mut config.layers {
            let shares = layer.mixer.attention().is_some_and(|it| it.kv_from.is_some());
            if let FeedForward::Mlp(mlp) = &mut layer.feed_forward
                && shares
            {
                mlp.intermediate_size *= 2;
            }
        }
    }
    if fields.flag("enable_moe_block")? == Some(true) {
        add_experts(fields, config)?;
    }
    const WIDTH: &str = "hidden_size_per_layer_input";
    let width = match fields.count(WIDTH)? {
        None if fields.has(WIDTH) => 0,
        width => width.unwrap_or(256),
    };
    let vocab = fields.size("vocab_size_per_layer_input")?.unwrap_or(262_144);
    let per_layer = (width > 0).then_some(PerLayerConfig { width, vocab: Some(vocab) });
    config.gemma4 = Some(Gemma4Config { per_layer, media_tokens: None });
    Ok(())
}

/// Adds experts beside the MLP of each layer, which is then the expert of all tokens.
fn add_experts(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let sizes = |name: &str| fields.required_size(name);
    let (num_experts, intermediate_size) = (sizes("num_experts")?, sizes("moe_intermediate_size")?);
    let top_k = sizes("num_experts_per_tok")?;
    for layer in &mut config.layers {
        let dense = MoeConfig::of_layer(layer);
        let shared = SharedExpert { intermediate_size: dense.intermediate_size, has_gate: false };
        let moe = MoeConfig {
            num_experts,
            top_k,
            intermediate_size,
            renormalize: true,
            expert_scales: Some("router.per_expert_scale"),
            shared: Some(shared),
            ..dense
        };
        moe.check(fields)?;
        layer.feed_forward = FeedForward::Moe(moe);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::fields;

    /// Returns the width of heads in the layers of full attention: the last of each six of twelve.
    fn width(listed: Value) -> Result<Option<usize>, String> {
        let full: Vec<bool> = (1..=12_usize).map(|layer| layer.is_multiple_of(PERIOD)).collect();
        let of_full = of_listed_layers(&fields(json!({ LAYER_FIELDS: listed })), &full);
        of_full.and_then(|it| it.size("head_dim")).map_err(|error| error.to_string())
    }

    /// As HF writes them: with as many digits as the last layer has.
    #[test]
    fn names_of_layers_may_have_zeros_before_them() {
        let sizes = json!({ "head_dim": 8 });
        assert_eq!(width(json!({ "05": sizes, "11": sizes })), Ok(Some(8)));
        assert_eq!(width(json!({ "5": sizes, "11": sizes })), Ok(Some(8)));
        for listed in [
            json!({ "05": sizes }),
            json!({ "04": sizes, "11": sizes }),
            json!({ "05": sizes, "11": { "head_dim": 9 } }),
            json!({ "05": sizes, "5": sizes, "11": sizes }),
            json!({ "fifth": sizes, "11": sizes }),
        ] {
            let why = width(listed).unwrap_err();
            assert!(why.contains(LAYER_FIELDS), "{why}");
        }
    }
}
