//! The route, and the settings that its body names.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    config::{Dtype, EngineConfig, Quantization},
    server::{
        http::{error::ApiError, extract::JsonBody, fields::Strings, parts::FromParts},
        state::AppState,
    },
};

/// The longest `drain_timeout`: a day.
const DRAIN_SECONDS_MAX: f64 = 86_400.0;

/// The body of `POST /swap_model`. Settings without a field stay as they are.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct SwapModelRequest {
    /// The model: a folder or a GGUF file on the server's machine, or a name (org/name).
    model: Option<String>,
    /// Names that requests may use for it. Without any, those of the server's settings, or else
    /// the model's path.
    #[schema(value_type = Option<Vec<String>>)]
    served_model_name: Option<Strings>,
    /// Branch, tag or commit of a model by name.
    revision: Option<String>,
    /// The source of the tokenizer. Without it, the model.
    tokenizer: Option<String>,
    /// Format of the weights: auto, float32, float16 or bfloat16.
    #[schema(value_type = Option<String>)]
    dtype: Option<Dtype>,
    /// Quantization at load: none, int8 or int4.
    #[schema(value_type = Option<String>)]
    quantization: Option<Quantization>,
    /// Largest number of tokens of prompt and output together. Without it, the model's.
    max_model_len: Option<usize>,
    /// Bytes of the KV cache.
    kv_cache_memory_bytes: Option<u64>,
    /// Share of a GPU's memory for both models together.
    gpu_memory_utilization: Option<f64>,
    /// Seconds that requests of the old model have to end. Without it, the server's
    /// shutdown_timeout_secs.
    drain_timeout: Option<f64>,
}

impl FromParts for SwapModelRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl SwapModelRequest {
    /// Returns the settings of the new engine, from those of the `present` one.
    ///
    /// # Errors
    /// If the model is missing, or a setting is out of range.
    fn settings(self, present: &EngineConfig) -> Result<EngineConfig, ApiError> {
        let model = self.model.filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| ApiError::validation("body.model", "Field required"))?;
        let mut config = present.for_model(model);
        if let Some(Strings(names)) = self.served_model_name {
            if names.is_empty() || names.iter().any(String::is_empty) {
                let message = "served_model_name must be a name, or a list of names";
                return Err(ApiError::invalid("served_model_name", message));
            }
            config.served_model_name = names;
        }
        config.revision = self.revision;
        config.tokenizer = self.tokenizer.map(Into::into);
        config.max_model_len = self.max_model_len;
        config.dtype = self.dtype.unwrap_or(config.dtype);
        config.quantization = self.quantization.unwrap_or(config.quantization);
        config.kv_cache_memory_bytes = self.kv_cache_memory_bytes.or(config.kv_cache_memory_bytes);
        config.gpu_memory_utilization =
            self.gpu_memory_utilization.unwrap_or(config.gpu_memory_utilization);
        config.validate().map_err(|invalid| {
            let message =
                format!("{} must be {}, got {}", invalid.name, invalid.accepted, invalid.value);
            ApiError::invalid(invalid.name, message)
        })?;
        Ok(config)
    }

    /// Returns the time that requests of the old model have, or `default`.
    fn drain_limit(&self, default: Duration) -> Result<Duration, ApiError> {
        let Some(seconds) = self.drain_timeout else { return Ok(default) };
        let limit = Some(seconds).filter(|seconds| (0.0..=DRAIN_SECONDS_MAX).contains(seconds));
        limit.map(Duration::from_secs_f64).ok_or_else(|| {
            let message = format!(
                "drain_timeout must be a number of seconds in [0, {DRAIN_SECONDS_MAX}], got \
                 {seconds}"
            );
            ApiError::invalid("drain_timeout", message)
        })
    }
}

/// Answers when new requests get the new model. The load goes on if the client leaves.
pub(in crate::server) async fn swap_model(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<SwapModelRequest>,
) -> Result<Json<Value>, ApiError> {
    let Some(swaps) = state.swaps.clone() else {
        let message = "this program serves one model: it does not listen, and ends with its work";
        return Err(ApiError::not_implemented("model", message));
    };
    let default = Duration::from_secs(state.config.shutdown_timeout_secs);
    let drain_limit = request.drain_limit(default)?;
    let config = request.settings(state.engine.config())?;
    let swap = tokio::spawn(Arc::clone(&swaps).swap(state, config, drain_limit));
    let swapped = swap.await.map_err(|error| ApiError::internal(error.to_string()))??;
    Ok(Json(json!({
        "status": "swapped",
        "model": swapped.model,
        "previous_model": swapped.previous_model,
        "load_seconds": swapped.load_time.as_secs_f64(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(body: Value) -> Result<EngineConfig, ApiError> {
        let request: SwapModelRequest = serde_json::from_value(body).unwrap();
        let present = EngineConfig {
            served_model_name: vec!["mine".to_owned()],
            max_model_len: Some(64),
            max_num_seqs: 3,
            quantization: Quantization::Int8,
            ..EngineConfig::new("a")
        };
        request.settings(&present)
    }

    #[test]
    fn fields_replace_settings_and_the_rest_stays() {
        let config = settings(json!({"model": "b", "dtype": "float32"})).unwrap();
        let expected = EngineConfig {
            served_model_name: vec!["mine".to_owned()],
            max_num_seqs: 3,
            quantization: Quantization::Int8,
            dtype: Dtype::Float32,
            ..EngineConfig::new("b")
        };
        assert_eq!(config, expected, "the context is the new model's own");
        let body = json!({"model": "b", "served_model_name": "b", "quantization": "none"});
        let config = settings(body).unwrap();
        assert_eq!(config.served_names(), ["b"]);
        assert_eq!(config.quantization, Quantization::None);
    }

    #[test]
    fn invalid_bodies_name_their_field() {
        let param = |body| settings(body).unwrap_err().param;
        assert_eq!(param(json!({})).as_deref(), Some("body.model"));
        assert_eq!(param(json!({"model": ""})).as_deref(), Some("body.model"));
        let nameless = json!({"model": "b", "served_model_name": []});
        assert_eq!(param(nameless).as_deref(), Some("served_model_name"));
        let body = json!({"model": "b", "max_model_len": 0});
        assert_eq!(param(body).as_deref(), Some("max_model_len"));
    }

    #[test]
    fn the_drain_takes_seconds() {
        let limit = |drain_timeout| {
            let request = SwapModelRequest { drain_timeout, ..SwapModelRequest::default() };
            request.drain_limit(Duration::from_secs(30)).map_err(|error| error.param)
        };
        assert_eq!(limit(None), Ok(Duration::from_secs(30)));
        assert_eq!(limit(Some(0.5)), Ok(Duration::from_millis(500)));
        for wrong in [-1.0, f64::NAN, 1e9] {
            assert_eq!(limit(Some(wrong)), Err(Some("drain_timeout".to_owned())));
        }
    }
}
