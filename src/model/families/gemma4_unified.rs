//! Gemma 4 without towers: HF `Gemma4UnifiedForConditionalGeneration`. Its text model is that of
//! Gemma 4, without experts and without embeddings of each layer.

use serde_json::Value;

use super::wrappers::{INSIDE, sizes};
use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, ModelConfig, TextModel,
    VisionFamily, Wrapper, gemma4,
};

const CLASS: &str = "Gemma4UnifiedForConditionalGeneration";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "gemma4_unified",
    models: "Gemma 4 12B",
    texts: &[TextModel {
        family: Family {
            architecture: CLASS,
            model_type: "gemma4_unified_text",
            defaults: Defaults { max_position_embeddings: 262_144, ..gemma4::FAMILY.defaults },
            layers: LayerRule::Own(read_layers),
            adjust,
            ..gemma4::FAMILY
        },
        sizes: sizes([262_144, 2_304, 9_216, 30, 8]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: &["model.vision_embedder", "model.embed_vision", "model.embed_audio"],
    vision: &[VisionFamily::Gemma4Unified],
    audio: None,
};

/// The fields of Gemma 4 that HF `Gemma4UnifiedTextConfig` does not have.
const ABSENT: [&str; 2] = ["hidden_size_per_layer_input", "enable_moe_block"];

/// Returns the fields with the defaults of the class.
fn with_defaults(fields: &Fields) -> Fields {
    let mut own = fields.clone();
    for (field, default) in
        [("sliding_window", 1_024.into()), ("use_bidirectional_attention", "vision".into())]
    {
        if !own.has(field) {
            own = own.with(field, default);
        }
    }
    ABSENT.into_iter().fold(own, |own, field| own.with(field, Value::Null))
}

fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    gemma4::read_layers(&with_defaults(fields), family, max_position_embeddings)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma4::adjust(&with_defaults(fields), config)
}
