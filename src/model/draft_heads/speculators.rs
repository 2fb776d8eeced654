//! Configs of the library speculators, as vLLM's `SpeculatorsConfig` reads them: the fields of the
//! layers are in an object of their own, and the head's settings beside it.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::{HeadMethod, JsonObject};
use crate::model::ModelError;
use crate::model::config::ConfigSource;

/// The field that only these configs have: the kind of the head.
const KIND: &str = "speculators_model_type";
/// The object with the fields of the layers.
const LAYER: &str = "transformer_layer_config";

/// The families of layers, by their `model_type`, and vLLM's classes of heads with these.
const CLASSES: [(&str, &str); 2] =
    [("llama", "Eagle3LlamaForCausalLM"), ("qwen3", "Eagle3Qwen3ForCausalLM")];

/// Returns the config of a head in the form of SafeAILab. A config without [`KIND`] stays.
pub(super) fn converted(
    path: &Path,
    mut config: ConfigSource,
    method: HeadMethod,
) -> Result<ConfigSource, ModelError> {
    let fields = config.fields();
    let Some(kind) = fields.text(KIND)? else { return Ok(config) };
    if (kind, method) != ("eagle3", HeadMethod::Eagle3) {
        let what = format!("its {KIND} is {kind}; accepted: eagle3, with the method eagle3");
        return Err(ModelError::DraftHead { path: path.to_owned(), what });
    }
    let Some(layer) = fields.nested(LAYER)? else {
        return Err(fields.missing(LAYER, "an object with the fields of the layers").into());
    };
    let model_type = layer.text("model_type")?.unwrap_or("llama");
    let Some((_, class)) = CLASSES.iter().find(|(known, _)| *known == model_type) else {
        return Err(layer.invalid("model_type", "llama or qwen3").into());
    };
    let mut own: Map<String, Value> = layer.object().clone();
    own.insert("architectures".to_owned(), json!([class]));
    own.insert("model_type".to_owned(), json!(model_type));
    let norm_before_residual = fields.flag("norm_before_residual")?.unwrap_or(true);
    own.insert("norm_before_residual".to_owned(), json!(norm_before_residual));
    config.override_with(&JsonObject(own));
    Ok(config)
}
