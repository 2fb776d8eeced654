//! Fields that a response does not support. An error names the field and the one to use instead.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::server::http::{error::ApiError, fields::IsSet};

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct RefusedFields {
    conversation: IsSet,
    prompt: IsSet,
    context_management: IsSet,
    moderation: IsSet,
    background_options: IsSet,
    chat_template: IsSet,
    return_token_ids: IsSet,
    use_beam_search: IsSet,
    previous_input_messages: IsSet,
    enable_response_messages: IsSet,
    stream_options: StreamOptions,
    // The names of these fields in chat completions.
    messages: IsSet,
    max_tokens: IsSet,
    max_completion_tokens: IsSet,
    response_format: IsSet,
    reasoning_effort: IsSet,
    logprobs: IsSet,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponsesStreamOptions)]
#[serde(default)]
struct StreamOptions {
    include_obfuscation: IsSet,
}

impl RefusedFields {
    /// # Errors
    /// Names the first field that is not supported.
    pub(super) fn refuse(&self) -> Result<(), ApiError> {
        let unknown = [
            ("conversation", self.conversation),
            ("prompt", self.prompt),
            ("context_management", self.context_management),
            ("moderation", self.moderation),
            ("background_options", self.background_options),
            ("chat_template", self.chat_template),
            ("return_token_ids", self.return_token_ids),
            ("use_beam_search", self.use_beam_search),
            ("previous_input_messages", self.previous_input_messages),
            ("enable_response_messages", self.enable_response_messages),
            ("stream_options.include_obfuscation", self.stream_options.include_obfuscation),
        ];
        if let Some((field, _)) = unknown.iter().find(|(_, given)| given.0) {
            return Err(ApiError::unsupported(field));
        }
        let moved = [
            ("messages", self.messages, "input"),
            ("max_tokens", self.max_tokens, "max_output_tokens"),
            ("max_completion_tokens", self.max_completion_tokens, "max_output_tokens"),
            ("response_format", self.response_format, "text.format"),
            ("reasoning_effort", self.reasoning_effort, "reasoning.effort"),
            ("logprobs", self.logprobs, "include"),
        ];
        match moved.iter().find(|(_, given, _)| given.0) {
            Some((field, _, name)) => {
                let message = format!("`{field}` is called `{name}` in the Responses API");
                Err(ApiError::invalid(field, message))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::server::http::extract::parse_object;

    fn refused(body: Value) -> Option<ApiError> {
        parse_object::<RefusedFields>(&body.to_string()).unwrap().refuse().err()
    }

    #[test]
    fn a_field_is_refused_by_name() {
        let error = refused(json!({"conversation": "conv_1"})).unwrap();
        assert_eq!(error.param.as_deref(), Some("conversation"));
        let error = refused(json!({"max_tokens": 5})).unwrap();
        assert_eq!(error.param.as_deref(), Some("max_tokens"));
        assert!(error.message.contains("max_output_tokens"), "{error:?}");
        assert!(refused(json!({"stream_options": {"include_obfuscation": true}})).is_some());
        // vLLM answers these with the messages of a model's own format.
        assert!(refused(json!({"previous_input_messages": [{"role": "user"}]})).is_some());
        assert!(refused(json!({"enable_response_messages": true})).is_some());
        for taken in [
            json!({}),
            json!({"conversation": null, "logprobs": false, "other": 1}),
            json!({"enable_response_messages": false}),
            json!({"stream_options": {"include_obfuscation": false}}),
        ] {
            assert_eq!(refused(taken.clone()), None, "{taken}");
        }
    }
}
