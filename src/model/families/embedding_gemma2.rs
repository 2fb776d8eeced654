//! EmbeddingGemma 2: HF `EmbeddingGemma2Model`.
//!
//! Gemma 4 with attention to both sides, and a vector behind its mean. The embeddings of each layer
//! are projections of the embeddings of tokens and images, without rows of their own. Images are
//! served, and videos and sounds are not.

use serde_json::json;

use super::gemma4::{LAYER_FIELDS, of_listed_layers, of_two_kinds, with_defaults};
use super::wrappers::sizes;
use super::{
    ConfigError, Defaults, Family, Fields, Gemma4Config, LayerConfig, LayerRule, ModelConfig,
    PerLayerConfig, TextModel, TextPlace, VisionFamily, WeightNames, Wrapper, gemma, gemma4,
};
use crate::model::encoder_class::{EncoderHead, PoolingField};

const CLASS: &str = "EmbeddingGemma2Model";

/// The longest context without the setting, as in vLLM. Positions go on to 262,144.
pub(super) const USUAL_LENGTH: usize = 8_192;

/// Layers between two that attend to all tokens, and one of these.
const PERIOD: usize = 6;

/// The modules of embeddings of each layer, by the names that Gemma 4 has.
const RENAMED: &[(&str, &str)] = &[
    ("model.per_layer_model_projection", "model.ple.per_layer_model_projection"),
    ("model.per_layer_projection_norm", "model.ple.per_layer_projection_norm"),
    ("per_layer_input_gate", "ple_block.per_layer_input_gate"),
    ("per_layer_projection", "ple_block.per_layer_projection"),
    ("post_per_layer_input_norm", "ple_block.post_per_layer_input_norm"),
];

/// HF `EmbeddingGemma2TextConfig`.
const TEXT: Family = Family {
    architecture: CLASS,
    model_type: "embedding_gemma2_text",
    models: "EmbeddingGemma 2",
    aliases: &[],
    defaults: Defaults {
        num_key_value_heads: Some(2),
        head_dim: Some(256),
        intermediate_size: Some(2_048),
        max_position_embeddings: 262_144,
        ..gemma4::FAMILY.defaults
    },
    layers: LayerRule::Own(read_layers),
    names: WeightNames { renamed: RENAMED, ..gemma4::FAMILY.names },
    adjust,
    ..gemma4::FAMILY
};

/// The projection behind the last norm, and the mean of a text. vLLM has no field for another
/// pooling, and `pooler_config` has one.
const HEAD: EncoderHead = EncoderHead::Projected {
    module: "language_model.embedding_projection",
    pooling: PoolingField { field: "pooling", default: "mean", accepted: &["mean"] },
};

/// The class with its head.
pub(in crate::model) const EMBEDDING_GEMMA2: &[(Wrapper, EncoderHead)] = &[(WRAPPER, HEAD)];

const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "embedding_gemma2",
    models: "EmbeddingGemma 2",
    texts: &[TextModel { family: TEXT, sizes: sizes([262_144, 512, 2_048, 24, 4]), experts: &[] }],
    may_be_flat: false,
    places: &[TextPlace { base: "language_model", lm_head: "lm_head" }],
    unread: &["vision_tower", "audio_tower", "embed_vision", "embed_audio"],
    vision: &[VisionFamily::Gemma4],
    audio: None,
};

/// Reads the layers of both kinds. Those that attend to all tokens have wider heads.
fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let period = fields.size("sliding_window_pattern")?.unwrap_or(PERIOD);
    let of_full = json!({ "rope_type": "default", "rope_theta": 1_000_000.0 });
    let fields = with_defaults(fields, period, of_full)?;
    of_two_kinds(&fields, family, max_position_embeddings, of_full_layers)
}

/// Returns the fields with the heads of layers that attend to all tokens.
fn of_full_layers(fields: &Fields, full: &[bool]) -> Result<Fields, ConfigError> {
    if fields.has(LAYER_FIELDS) {
        return of_listed_layers(fields, full);
    }
    let width = fields.size("global_head_dim")?.unwrap_or(512);
    let heads = fields.size("num_global_key_value_heads")?.unwrap_or(1);
    Ok(fields.with("head_dim", width.into()).with("num_key_value_heads", heads.into()))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma::scale_embeddings(config);
    for attention in config.attentions() {
        attention.scale = 1.0;
        attention.normalizes_values = true;
        attention.is_causal = false;
        // A token sees the radius on each side, and itself.
        attention.sliding_window = attention.sliding_window.map(|radius| radius + 1);
    }
    let width = fields.size("hidden_size_per_layer_input")?.unwrap_or(512);
    let per_layer = Some(PerLayerConfig { width, vocab: None });
    config.gemma4 = Some(Gemma4Config { per_layer, media_tokens: None });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::model::config::{AttentionConfig, fields};
    use crate::model::families::{Entry, wrapper_of};

    fn read(text: Value, requested: Option<usize>) -> Result<ModelConfig, String> {
        let config = json!({
            "architectures": [CLASS], "model_type": "embedding_gemma2", "text_config": text,
        });
        let entry = Entry::Wrapper(wrapper_of(CLASS).unwrap());
        let config = ModelConfig::of_entry(&fields(config).into(), entry, requested);
        config.map_err(|error| error.to_string())
    }

    /// Returns the window, the heads of keys, the width of heads and the base of each layer.
    fn layers(text: Value) -> Vec<(Option<u32>, usize, usize, f64)> {
        let config = read(text, None).unwrap();
        let attentions = config.layers.iter().filter_map(|layer| layer.mixer.attention());
        let theta = |it: &AttentionConfig| it.rope.as_ref().map_or(0.0, |rope| rope.theta);
        attentions.map(|it| (it.sliding_window, it.num_kv_heads, it.head_dim, theta(it))).collect()
    }

    /// As HF `EmbeddingGemma2TextConfig`.
    #[test]
    fn layers_have_the_defaults_of_the_class() {
        let sliding = (Some(513), 2, 256, 10_000.0);
        let full = (None, 1, 512, 1_000_000.0);
        let three = json!({ "num_hidden_layers": 3, "sliding_window_pattern": 2 });
        assert_eq!(layers(three), [sliding, full, full]);
        let all = layers(json!({}));
        let num_full = all.iter().filter(|layer| **layer == full).count();
        assert_eq!((all.len(), num_full), (24, 4));
        let own = json!({
            "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 7, "global_head_dim": 8, "num_global_key_value_heads": 4,
        });
        assert_eq!(layers(own), [(Some(8), 2, 256, 10_000.0), (None, 4, 8, 1_000_000.0)]);
        let listed = json!({
            "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
            "per_layer_config": { "1": { "head_dim": 6 } },
        });
        let wide = (None, 2, 6, 1_000_000.0);
        assert_eq!(layers(listed), [sliding, wide]);
        let padded = layers(json!({
            "num_hidden_layers": 12,
            "per_layer_config": { "05": { "head_dim": 6 }, "11": { "head_dim": 6 } },
        }));
        assert_eq!((padded[4], padded[5], padded[11]), (sliding, wide, wide));
    }

    #[test]
    fn a_context_is_as_long_as_usual_or_as_the_setting_asks() {
        let length = |requested| read(json!({}), requested).map(|config| config.max_model_len);
        assert_eq!(length(None), Ok(USUAL_LENGTH));
        assert_eq!(length(Some(20_000)), Ok(20_000));
        let short = read(json!({ "max_position_embeddings": 99 }), None).unwrap();
        assert_eq!(short.max_model_len, 99);
    }

    #[test]
    fn fields_of_other_forms_are_refused() {
        for (field, value) in [
            ("rope_theta", json!(3.0)),
            ("per_layer_config", json!({ "0": { "head_dim": 6 } })),
            ("sliding_window_pattern", json!(0)),
            ("hidden_size_per_layer_input", json!(0)),
        ] {
            let why = read(json!({ field: value }), None).unwrap_err();
            assert!(why.contains(field), "{why}");
        }
    }
}
