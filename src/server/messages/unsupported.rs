//! Fields that are not supported, and fields that change nothing here.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::server::http::{
    error::ApiError,
    fields::{IsSet, unless_empty},
};

/// Fields that are rejected, because an answer that ignores one would be wrong.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct UnsupportedFields {
    container: IsSet,
    mcp_servers: IsSet,
    inference_geo: IsSet,
    diagnostics: IsSet,
    user_profile_id: IsSet,
    workspace_id: IsSet,
    watermarking: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    kv_transfer_params: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    ec_transfer_params: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    vllm_xargs: IsSet,
    speed: Option<String>,
    context_management: Option<ContextManagement>,
}

/// Hints for the operator. They change nothing: prompts are always cached, and all requests are
/// served alike.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct Hints {
    #[serde(rename = "metadata")]
    _metadata: Option<Metadata>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<String>,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct Metadata {
    #[serde(rename = "user_id")]
    _user_id: Option<String>,
}

/// The edits of a long conversation.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
struct ContextManagement {
    edits: Vec<Value>,
}

impl UnsupportedFields {
    /// Returns an error that names the first field that is not supported.
    pub(super) fn refuse(&self) -> Result<(), ApiError> {
        let fields = [
            ("container", self.container),
            ("mcp_servers", self.mcp_servers),
            ("inference_geo", self.inference_geo),
            ("diagnostics", self.diagnostics),
            ("user_profile_id", self.user_profile_id),
            ("workspace_id", self.workspace_id),
            ("watermarking", self.watermarking),
            ("kv_transfer_params", self.kv_transfer_params),
            ("ec_transfer_params", self.ec_transfer_params),
            ("vllm_xargs", self.vllm_xargs),
        ];
        if let Some((field, _)) = fields.iter().find(|(_, given)| given.0) {
            return Err(ApiError::unsupported(field));
        }
        if self.speed.as_ref().is_some_and(|speed| speed != "standard") {
            let message = "speed: this server knows 'standard' alone";
            return Err(ApiError::invalid("speed", message));
        }
        let mut edits = self.context_management.iter().flat_map(|management| &management.edits);
        // An edit that keeps all thoughts changes nothing.
        if edits.any(|edit| edit["type"] != "clear_thinking_20251015" || edit["keep"] != "all") {
            return Err(ApiError::unsupported("context_management"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::http::extract::parse_object;

    #[test]
    fn a_set_field_is_rejected_by_name() {
        let refused = |body: &Value| {
            let fields: UnsupportedFields = parse_object(&body.to_string()).unwrap();
            fields.refuse().err().map(|error| error.param.unwrap())
        };
        let clear_tools = json!({"edits": [{"type": "clear_tool_uses_20250919"}]});
        let wrong = [
            json!({"container": "a"}),
            json!({"mcp_servers": [{"name": "a"}]}),
            json!({"inference_geo": "eu"}),
            json!({"vllm_xargs": {"rule": 1}}),
            json!({"kv_transfer_params": {"do_remote_decode": true}}),
            json!({"speed": "fast"}),
            json!({ "context_management": clear_tools }),
        ];
        for body in &wrong {
            let field = body.as_object().unwrap().keys().next();
            assert_eq!(refused(body).as_ref(), field, "{body}");
        }
        let keep_all = json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]});
        for body in [
            json!({"container": null, "speed": "standard"}),
            json!({ "context_management": keep_all }),
            json!({"context_management": {}}),
            json!({"vllm_xargs": {}, "watermarking": false}),
        ] {
            assert_eq!(refused(&body), None, "{body}");
        }
    }

    #[test]
    fn hints_have_a_form() {
        let body = r#"{"metadata": {"user_id": "a"}, "cache_control": {"type": "ephemeral"}}"#;
        assert!(parse_object::<Hints>(body).is_ok());
        let error = parse_object::<Hints>(r#"{"metadata": {"user_id": 1}}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("body.metadata.user_id"));
    }
}
