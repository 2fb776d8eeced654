//! `GET /tokenizer_info`: the tokenizer's configuration, for clients that template and tokenize by
//! themselves. The route exists only if the operator enables it.

use std::path::Path;

use axum::{Json, extract::State};
use serde_json::{Map, Value};

use crate::{
    api::TextCodec,
    gguf::{GgufFile, is_gguf},
    model_files,
    server::{http::error::ApiError, state::AppState},
};

/// The files of a Hugging Face folder with the configuration.
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// The key of a GGUF file's chat template.
const GGUF_TEMPLATE: &str = "tokenizer.chat_template";

/// Returns `tokenizer_config.json`, with the chat template if that has a file of its own, and with
/// the tokens at the ends of texts. A model without that file has these fields only.
pub(in crate::server) async fn tokenizer_info(
    State(state): State<AppState>,
) -> Result<Json<Value>, ApiError> {
    let path = state.engine.config().tokenizer_path().to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    let read = read.map_err(|error| ApiError::internal(error.to_string()))?;
    let mut info = read.map_err(ApiError::internal)?;
    add_ends(&mut info, state.engine.codec().as_ref());
    Ok(Json(Value::Object(info)))
}

/// Adds the tokens before and after a text, which clients need to know. The file may leave them to
/// another one.
fn add_ends(info: &mut Map<String, Value>, codec: &dyn TextCodec) {
    for (name, token) in [("bos_token", codec.bos_token()), ("eos_token", codec.eos_token())] {
        if let (None | Some(Value::Null), Some((token, _))) = (info.get(name), token) {
            info.insert(name.to_owned(), token.into());
        }
    }
}

fn read(model: &Path) -> Result<Map<String, Value>, String> {
    let config = model.join(CONFIG);
    let mut info: Map<String, Value> = match model_files::exists(&config) {
        true => {
            let text = model_files::read(&config).map_err(|error| format!("{CONFIG}: {error}"))?;
            serde_json::from_slice(&text).map_err(|error| format!("{CONFIG}: {error}"))?
        }
        false => Map::new(),
    };
    if let Some(template) = template(model)? {
        info.insert("chat_template".to_owned(), template.into());
    }
    info.entry("tokenizer_class").or_insert("PreTrainedTokenizerFast".into());
    Ok(info)
}

/// Returns the chat template that is not in the configuration.
fn template(model: &Path) -> Result<Option<String>, String> {
    if is_gguf(model) {
        let file = GgufFile::open(model).map_err(|error| error.to_string())?;
        let template = file.text(GGUF_TEMPLATE).map_err(|error| error.to_string())?;
        return Ok(template.map(str::to_owned));
    }
    let text = model_files::read(&model.join(TEMPLATE)).ok();
    Ok(text.and_then(|text| String::from_utf8(text.into_owned()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::HfTextCodec;

    #[test]
    fn the_demo_models_tokenizer_has_its_template_and_its_end() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"));
        for model in [folder.to_owned(), model_files::demo_model()] {
            let info = read(&model).unwrap();
            assert_eq!(info["eos_token"], "<|im_end|>", "{model:?}");
            assert_eq!(info["tokenizer_class"], "TokenizersBackend");
            let template = info["chat_template"].as_str().unwrap();
            assert!(template.contains("{%"), "{template}");
        }
    }

    #[test]
    fn a_file_that_leaves_the_ends_to_another_gets_them() {
        let codec = HfTextCodec::load(&model_files::demo_model()).unwrap();
        let mut info = Map::from_iter([("bos_token".to_owned(), Value::Null)]);
        add_ends(&mut info, &codec);
        assert_eq!(Value::Object(info.clone())["eos_token"], "<|im_end|>");
        // The model has no token before texts.
        assert_eq!(info["bos_token"], Value::Null);
        info.insert("eos_token".to_owned(), "own".into());
        add_ends(&mut info, &codec);
        assert_eq!(info["eos_token"], "own");
    }
}
