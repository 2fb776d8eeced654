//! `GET /api/tags` and `GET /api/ps`: the one model, which is always loaded. `GET /api/version`.

use std::path::Path;

use axum::{Json, extract::State};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::line::now;
use crate::{
    engine::Engine,
    server::{http::error::ApiError, state::AppState},
};

/// The version of Ollama whose API this is. Some clients refuse to talk to older ones.
const API_VERSION: &str = "0.12.6";
/// When the model is unloaded: never. Ollama writes it so for a negative `keep_alive`.
const NEVER: &str = "2318-01-01T00:00:00Z";
/// Endings of the names of architectures, which the names of families lack.
const ENDINGS: [&str; 5] = [
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForSequenceClassification",
    "ForMaskedLM",
    "Model",
];

/// The answer to `GET /api/version`.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaVersion)]
pub(in crate::server) struct Version {
    /// The version of the API.
    version: &'static str,
    /// This server.
    server: &'static str,
}

/// The answer to `GET /api/tags`.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaTags)]
pub(in crate::server) struct ModelTags {
    models: Vec<ModelTag>,
}

/// One of the model's names.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaTag)]
pub(super) struct ModelTag {
    name: String,
    model: String,
    modified_at: String,
    size: u64,
    digest: String,
    details: Details,
}

/// The answer to `GET /api/ps`.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaRunning)]
pub(in crate::server) struct RunningModels {
    models: Vec<RunningModel>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OllamaRunningModel)]
struct RunningModel {
    #[serde(flatten)]
    tag: ModelTag,
    expires_at: &'static str,
    size_vram: u64,
    context_length: usize,
}

/// The facts about a model.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = OllamaDetails)]
pub(super) struct Details {
    parent_model: String,
    format: &'static str,
    pub(super) family: String,
    families: Vec<String>,
    /// Empty: the number of parameters is not counted.
    parameter_size: String,
    quantization_level: String,
}

/// `GET /api/version`
pub(super) async fn version() -> Json<Version> {
    let server = concat!("playhouse ", env!("CARGO_PKG_VERSION"));
    Json(Version { version: API_VERSION, server })
}

/// `GET /api/tags`
pub(super) async fn tags(State(state): State<AppState>) -> Result<Json<ModelTags>, ApiError> {
    Ok(Json(ModelTags { models: all(&state).await? }))
}

/// `GET /api/ps`
pub(super) async fn running(
    State(state): State<AppState>,
) -> Result<Json<RunningModels>, ApiError> {
    let context_length = state.engine.model_info().max_model_len;
    let is_on_gpu = state.engine.loaded().device != "cpu";
    let running = all(&state).await?.into_iter().map(|tag| {
        let size_vram = if is_on_gpu { tag.size } else { 0 };
        RunningModel { tag, expires_at: NEVER, size_vram, context_length }
    });
    Ok(Json(RunningModels { models: running.collect() }))
}

/// Returns the model under each of its names, then its adapters.
async fn all(state: &AppState) -> Result<Vec<ModelTag>, ApiError> {
    let engine = &state.engine;
    // The root of a model by its name is that name.
    let path = engine.config().model.clone();
    let size = tokio::task::spawn_blocking(move || weights_bytes(&path)).await;
    let size = size.map_err(|error| ApiError::internal(error.to_string()))?;
    let details = details(engine);
    let tag = |name: &str, parent: Option<&String>| ModelTag {
        name: name.to_owned(),
        model: name.to_owned(),
        modified_at: now(),
        size,
        digest: digest(engine, parent.map(|_| name)),
        details: Details { parent_model: parent.cloned().unwrap_or_default(), ..details.clone() },
    };
    let served = engine.served_model_names();
    let mut tags: Vec<ModelTag> = served.iter().map(|name| tag(name, None)).collect();
    tags.extend(engine.lora_adapters().iter().map(|adapter| tag(&adapter.name, served.first())));
    Ok(tags)
}

/// Returns the facts about the model.
pub(super) fn details(engine: &Engine) -> Details {
    let loaded = engine.loaded();
    let family = family(&loaded.architecture);
    let is_gguf = engine.config().model.extension().is_some_and(|ending| ending == "gguf");
    let quantized = loaded.quantized_weights.as_ref().map(|weights| weights.format.to_string());
    Details {
        parent_model: String::new(),
        format: if is_gguf { "gguf" } else { "safetensors" },
        families: vec![family.clone()],
        family,
        parameter_size: String::new(),
        quantization_level: quantized.unwrap_or_else(|| loaded.dtype.name().to_uppercase()),
    }
}

/// Returns the name of a family: that of the architecture without what it computes.
fn family(architecture: &str) -> String {
    let ending = ENDINGS.iter().find_map(|ending| architecture.strip_suffix(ending));
    ending.filter(|name| !name.is_empty()).unwrap_or(architecture).to_lowercase()
}

/// Returns a name for the model that is the same after a restart. It is no hash of the weights.
fn digest(engine: &Engine, adapter: Option<&str>) -> String {
    let loaded = engine.loaded();
    let mut hasher = Sha256::new();
    for part in [&loaded.root, &loaded.architecture, loaded.dtype.name()] {
        hasher.update(part);
        hasher.update([0]);
    }
    hasher.update(adapter.unwrap_or_default());
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the size of the files with weights. 0 for a model that is in the program itself.
fn weights_bytes(root: &Path) -> u64 {
    let is_weights = |path: &Path| {
        path.extension().is_some_and(|ending| ending == "safetensors" || ending == "gguf")
    };
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let Ok(folder) = std::fs::read_dir(root) else {
        return if is_weights(root) { size(root) } else { 0 };
    };
    let files = folder.flatten().map(|entry| entry.path());
    files.filter(|path| is_weights(path)).map(|path| size(&path)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_the_architecture_without_its_task() {
        let families = [
            ("Qwen3ForCausalLM", "qwen3"),
            ("Gemma3ForConditionalGeneration", "gemma3"),
            ("BertModel", "bert"),
            ("Model", "model"),
            ("GPT2LMHeadModel", "gpt2lmhead"),
        ];
        for (architecture, expected) in families {
            assert_eq!(family(architecture), expected);
        }
    }

    #[test]
    fn only_weights_count() {
        let folder = tempfile::tempdir().unwrap();
        for (name, len) in [("a.safetensors", 5), ("b.safetensors", 7), ("config.json", 100)] {
            std::fs::write(folder.path().join(name), vec![0; len]).unwrap();
        }
        assert_eq!(weights_bytes(folder.path()), 12);
        assert_eq!(weights_bytes(&folder.path().join("a.safetensors")), 5);
        assert_eq!(weights_bytes(&folder.path().join("nothing")), 0);
    }
}
