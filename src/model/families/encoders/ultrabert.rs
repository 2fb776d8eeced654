//! UltraBERT: HF `UltrabertModel`.
//!
//! Llama with attention to both sides. Two layers of three have a window, with a rotary embedding
//! of its own. The embeddings have no norm, also in UltraVBERT, which has images.

use serde_json::{Value, json};

use super::{
    ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields, LayerConfig,
    LayerRule, ModelConfig, PoolingField, RopeRule, SlidingRope, WeightNames, WindowRule,
    attend_to_both_sides, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "UltrabertModel",
    model_type: "ultrabert",
    models: "UltraBERT",
    defaults: Defaults {
        intermediate_size: Some(11_008),
        max_position_embeddings: 32_768,
        rope_theta: 2_560_000.0,
        ..llama::DEFAULTS
    },
    windows: WindowRule::AllButEvery { period: 3, field: None },
    rope: RopeRule { sliding: Some(SlidingRope { theta: None, default: 10_000.0 }), ..llama::ROPE },
    layers: LayerRule::Own(read_layers),
    other_names: Some(&OF_THE_AUTHORS),
    adjust,
    ..llama::FAMILY
};

/// The names in checkpoints that are older than HF's class, whose base is the module `ultrabert`. A
/// checkpoint without a module `model` is read as one within it.
const OF_THE_AUTHORS: WeightNames = WeightNames {
    embed_tokens: "model.ultrabert.embed_tokens",
    layer: "model.ultrabert.layers",
    norm: "model.ultrabert.norm",
    ..llama::NAMES
};

/// The tokens that a token sees on each side, in layers with a window.
const RADIUS: usize = 128;

const WINDOWS: &str = "attention_windows";
const RADIUS_FIELD: &str = "sliding_window";
const LAYER_TYPES: &str = "layer_types";
const THETA: &str = "rope_theta";
const ROPE: &str = "rope_parameters";
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

const POOLING: PoolingField =
    PoolingField { field: "classifier_pooling", default: "cls", accepted: &["cls", "mean"] };

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "UltrabertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "UltrabertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").pooled_by(POOLING)),
    },
    EncoderClass {
        architecture: "UltrabertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

/// Reads the layers, also from the fields of configs that are older than HF's class.
fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let mut fields = with_radius(fields, count)?;
    if fields.value(THETA).is_some() {
        fields = with_bases(&fields, count)?;
    }
    read_alike(&fields, family, max_position_embeddings)
}

/// Returns the fields with the radius of windows, and with the kinds of layers if a list of windows
/// tells them. A window of 0 or null is none.
fn with_radius(fields: &Fields, count: usize) -> Result<Fields, ConfigError> {
    let radius_or_default = || match fields.value(RADIUS_FIELD) {
        Some(_) => Ok(fields.clone()),
        None if fields.has(RADIUS_FIELD) => Err(fields.invalid(RADIUS_FIELD, "a positive integer")),
        None => Ok(fields.with(RADIUS_FIELD, RADIUS.into())),
    };
    let Some(listed) = fields.value(WINDOWS) else { return radius_or_default() };
    let size = |window: &Value| if window.is_null() { Some(0) } else { window.as_u64() };
    let windows = listed.as_array().filter(|windows| windows.len() == count);
    let windows: Option<Vec<u64>> = windows.and_then(|it| it.iter().map(size).collect());
    let radius = |windows: &[u64]| windows.iter().copied().find(|window| *window > 0);
    let are_alike = |windows: &Vec<u64>| {
        let first = radius(windows);
        windows.iter().all(|window| *window == 0 || Some(*window) == first)
    };
    let Some(windows) = windows.filter(are_alike) else {
        let expected = format!("a list of {count} (num_hidden_layers) windows of one size, or 0");
        return Err(fields.invalid(WINDOWS, &expected));
    };
    let mut fields = match radius(&windows) {
        Some(radius) => fields.with(RADIUS_FIELD, radius.into()),
        None => radius_or_default()?,
    };
    if fields.value(LAYER_TYPES).is_none() {
        let kind = |window: &u64| if *window > 0 { SLIDING } else { FULL };
        let kinds: Vec<&str> = windows.iter().map(kind).collect();
        fields = fields.with(LAYER_TYPES, json!(kinds));
    }
    Ok(fields)
}

/// Returns the fields with the bases of each kind of layer, from a list with that of each layer.
/// The layers of a kind have one base. Parameters of the newer form win, as in HF's class.
fn with_bases(fields: &Fields, count: usize) -> Result<Fields, ConfigError> {
    let without = fields.without(&[THETA]);
    if fields.value(ROPE).is_some() {
        return Ok(without);
    }
    if !fields.value(THETA).is_some_and(Value::is_array) {
        return Err(fields.invalid(THETA, "a list with a base for each layer"));
    }
    let bases = fields.numbers(THETA, count)?.unwrap_or_default();
    let kinds: Vec<bool> = match fields.value(LAYER_TYPES) {
        None => (1..=count).map(|layer| !layer.is_multiple_of(3)).collect(),
        Some(_) => fields.flags(LAYER_TYPES, [FULL, SLIDING], count)?.unwrap_or_default(),
    };
    let mut parameters = json!({});
    for (name, is_sliding) in [(FULL, false), (SLIDING, true)] {
        let of_kind = bases.iter().zip(&kinds).filter(|(_, kind)| **kind == is_sliding);
        let mut of_kind = of_kind.map(|(base, _)| *base);
        let Some(base) = of_kind.next() else { continue };
        if !base.is_finite() || of_kind.any(|other| other != base) {
            return Err(fields.invalid(THETA, "one finite number for all layers of a kind"));
        }
        parameters[name] = json!({ "rope_type": "default", THETA: base });
    }
    Ok(without.with(ROPE, parameters))
}

fn adjust(_: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // A token sees the radius on each side, and itself.
    for attention in config.attentions() {
        attention.sliding_window = attention.sliding_window.map(|radius| radius + 1);
    }
    attend_to_both_sides(config);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::{AttentionConfig, fields};

    /// Returns the window and the base of each layer.
    fn layers(config: Value) -> Result<Vec<(Option<u32>, f64)>, String> {
        let mut all = json!({
            "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 9,
        });
        for (field, value) in config.as_object().into_iter().flatten() {
            all[field] = value.clone();
        }
        let layers = read_layers(&fields(all), &FAMILY, 512).map_err(|error| error.to_string())?;
        let attentions = layers.iter().filter_map(|layer| layer.mixer.attention());
        let theta = |it: &AttentionConfig| it.rope.as_ref().map_or(0.0, |rope| rope.theta);
        Ok(attentions.map(|it| (it.sliding_window, theta(it))).collect())
    }

    /// As HF `UltrabertConfig.__post_init__`.
    #[test]
    fn older_fields_mean_the_same() {
        let newer = json!({
            "sliding_window": 7,
            "layer_types": [SLIDING, FULL, SLIDING],
            "rope_parameters": {
                SLIDING: { "rope_type": "default", "rope_theta": 30.0 },
                FULL: { "rope_type": "default", "rope_theta": 70.0 },
            },
        });
        let older = json!({
            "sliding_window": 99,
            "attention_windows": [7, 0, 7],
            "rope_theta": [30.0, 70.0, 30.0],
        });
        let expected = vec![(Some(7), 30.0), (None, 70.0), (Some(7), 30.0)];
        assert_eq!(layers(newer.clone()), Ok(expected.clone()));
        assert_eq!(layers(older), Ok(expected.clone()));
        let usual = (Some(RADIUS as u32), 10_000.0);
        assert_eq!(layers(json!({})), Ok(vec![usual, usual, (None, 2_560_000.0)]));
        let full =
            json!({ "attention_windows": [null, null, null], "rope_theta": [5.0, 5.0, 5.0] });
        assert_eq!(layers(full), Ok(vec![(None, 5.0); 3]));
        let without_windows = json!({
            "sliding_window": 7,
            "layer_types": [SLIDING, FULL, SLIDING],
            "attention_windows": [0, 0, 0],
            "rope_theta": 3.0,
            "rope_parameters": newer["rope_parameters"],
        });
        assert_eq!(layers(without_windows), Ok(expected));
    }

    #[test]
    fn layers_of_a_kind_are_alike() {
        for (field, value) in [
            ("attention_windows", json!([7, 8, 0])),
            ("attention_windows", json!([7, 0])),
            ("attention_windows", json!(7)),
            ("rope_theta", json!([3.0, 4.0, 5.0])),
            ("rope_theta", json!([3.0])),
            ("rope_theta", json!(3.0)),
            ("sliding_window", json!(null)),
        ] {
            let why = layers(json!({ field: value })).unwrap_err();
            assert!(why.contains(field), "{why}");
        }
    }
}
