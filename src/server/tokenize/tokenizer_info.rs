//! `GET /tokenizer_info`: the tokenizer's configuration, for clients that template and tokenize by
//! themselves. The route exists only if the operator enables it.

use std::path::Path;

use axum::{Json, extract::State};
use serde_json::{Map, Value};

use crate::files;
use crate::server::{http::error::ApiError, state::AppState};

/// The files of a Hugging Face folder with the configuration.
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// Returns `tokenizer_config.json`, with the chat template if that has a file of its own.
pub(in crate::server) async fn tokenizer_info(
    State(state): State<AppState>,
) -> Result<Json<Value>, ApiError> {
    let path = state.engine.config().tokenizer_path().to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    let read = read.map_err(|error| ApiError::internal(error.to_string()))?;
    read.map(Json).map_err(ApiError::internal)
}

fn read(folder: &Path) -> Result<Value, String> {
    let config = folder.join(CONFIG);
    let mut info: Map<String, Value> = match config.is_file() {
        true => {
            let text = files::read(&config).map_err(|error| format!("{CONFIG}: {error}"))?;
            serde_json::from_slice(&text).map_err(|error| format!("{CONFIG}: {error}"))?
        }
        false => Map::new(),
    };
    if let Ok(template) = files::read_to_string(&folder.join(TEMPLATE)) {
        info.insert("chat_template".to_owned(), template.into());
    }
    info.entry("tokenizer_class").or_insert("PreTrainedTokenizerFast".into());
    Ok(Value::Object(info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_models_tokenizer_has_its_template() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"));
        let info = read(folder).unwrap();
        assert!(info["tokenizer_class"].is_string());
        assert!(info["chat_template"].as_str().is_some_and(|template| template.contains("{%")));
    }
}
