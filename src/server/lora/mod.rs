//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`: adapters while the server runs.
//! They exist only where the operator allows it, as with vLLM's VLLM_ALLOW_RUNTIME_LORA_UPDATING.

mod error;
mod metrics;

use axum::{body::Body, extract::State, response::Response};
use serde::Deserialize;
use utoipa::ToSchema;

pub(super) use self::metrics::lora_requests_info;
use super::{
    http::{error::ApiError, extract::JsonBody, fields::flag, parts::FromParts},
    state::AppState,
};

/// The body of a load.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct LoadAdapterRequest {
    /// The name under which requests choose the adapter.
    lora_name: Option<String>,
    /// The folder with its files, relative to the server's, or its name on the hub.
    lora_path: Option<String>,
    /// Whether the adapter may take the place of one with this name.
    #[serde(deserialize_with = "flag")]
    load_inplace: Option<bool>,
    /// vLLM's mark of matrices of all experts in one tensor, which their shapes tell here.
    #[serde(rename = "is_3d_lora_weight")]
    _is_3d_lora_weight: Option<bool>,
}

/// The body of an unload.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct UnloadAdapterRequest {
    /// The name of the adapter.
    lora_name: Option<String>,
    /// vLLM's number of the adapter, which has no effect there either.
    #[serde(rename = "lora_int_id")]
    _lora_int_id: Option<i64>,
}

impl FromParts for LoadAdapterRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl FromParts for UnloadAdapterRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

pub(super) async fn load(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<LoadAdapterRequest>,
) -> Result<Response, ApiError> {
    let name = required("lora_name", request.lora_name)?;
    let path = required("lora_path", request.lora_path)?;
    let in_place = request.load_inplace.unwrap_or(false);
    state.engine.load_lora_adapter(&name, &path, in_place).await?;
    Ok(success(format!("Success: LoRA adapter '{name}' added successfully.")))
}

pub(super) async fn unload(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<UnloadAdapterRequest>,
) -> Result<Response, ApiError> {
    let name = required("lora_name", request.lora_name)?;
    if name.is_empty() {
        let message = "'lora_name' needs to be provided to unload a LoRA adapter.";
        return Err(ApiError::invalid_user_input(message));
    }
    state.engine.unload_lora_adapter(&name)?;
    Ok(success(format!("Success: LoRA adapter '{name}' removed successfully.")))
}

fn required(field: &str, value: Option<String>) -> Result<String, ApiError> {
    value.ok_or_else(|| ApiError::validation(&format!("body.{field}"), "Field required"))
}

/// Returns an answer of plain text. As vLLM's, it has no content type.
fn success(text: String) -> Response {
    Response::new(Body::from(text))
}
