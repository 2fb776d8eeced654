//! Fields of the API that this server does not honour. Whoever sends one is told so: an answer
//! that ignores it would be wrong.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{error::ApiError, fields::IsSet};

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct LaterFields {
    response_format: Option<Map<String, Value>>,
    structured_outputs: Option<Map<String, Value>>,
    use_beam_search: IsSet,
    suffix: IsSet,
    prompt_embeds: IsSet,
    audio: IsSet,
    functions: IsSet,
    function_call: IsSet,
    guided_json: IsSet,
    guided_regex: IsSet,
    guided_choice: IsSet,
    guided_grammar: IsSet,
    logprob_token_ids: IsSet,
    thinking_token_budget: IsSet,
    watermarking: IsSet,
    kv_transfer_params: IsSet,
    ec_transfer_params: IsSet,
    vllm_xargs: IsSet,
    mm_payload: IsSet,
    mm_processor_kwargs: IsSet,
    media_io_kwargs: IsSet,
    return_token_offsets: IsSet,
    return_prompt_text: IsSet,
}

impl LaterFields {
    /// An error that names the first field that cannot be honoured.
    pub(super) fn refuse(&self) -> Result<(), ApiError> {
        self.refuse_response_format()?;
        self.refuse_structured_outputs()?;
        let fields = [
            ("use_beam_search", self.use_beam_search),
            ("suffix", self.suffix),
            ("prompt_embeds", self.prompt_embeds),
            ("audio", self.audio),
            ("functions", self.functions),
            ("function_call", self.function_call),
            ("guided_json", self.guided_json),
            ("guided_regex", self.guided_regex),
            ("guided_choice", self.guided_choice),
            ("guided_grammar", self.guided_grammar),
            ("logprob_token_ids", self.logprob_token_ids),
            ("thinking_token_budget", self.thinking_token_budget),
            ("watermarking", self.watermarking),
            ("kv_transfer_params", self.kv_transfer_params),
            ("ec_transfer_params", self.ec_transfer_params),
            ("vllm_xargs", self.vllm_xargs),
            ("mm_payload", self.mm_payload),
            ("mm_processor_kwargs", self.mm_processor_kwargs),
            ("media_io_kwargs", self.media_io_kwargs),
            ("return_token_offsets", self.return_token_offsets),
            ("return_prompt_text", self.return_prompt_text),
        ];
        match fields.iter().find(|(_, given)| given.0) {
            Some((field, _)) => Err(ApiError::unsupported(field)),
            None => Ok(()),
        }
    }

    fn refuse_response_format(&self) -> Result<(), ApiError> {
        let Some(format) = &self.response_format else { return Ok(()) };
        let kind = match format.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(_) | None => "",
        };
        let refuse = |message: String| Err(ApiError::invalid("response_format", message));
        match kind {
            "text" => Ok(()),
            "json_schema" if format.get("json_schema").is_none_or(Value::is_null) => refuse(
                "When response_format type is 'json_schema', the 'json_schema' field must be \
                 provided."
                    .to_owned(),
            ),
            "json_object" | "json_schema" | "structural_tag" => {
                refuse(format!("response_format type '{kind}' is not supported by this server"))
            }
            _ => Err(ApiError::validation(
                "body.response_format.type",
                "Input should be 'text', 'json_object', 'json_schema' or 'structural_tag'",
            )),
        }
    }

    fn refuse_structured_outputs(&self) -> Result<(), ApiError> {
        const CONSTRAINTS: [&str; 6] =
            ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];
        let Some(outputs) = &self.structured_outputs else { return Ok(()) };
        let given = |name: &&&str| outputs.get(**name).is_some_and(|value| !value.is_null());
        match CONSTRAINTS.iter().filter(given).count() {
            0 => Ok(()),
            1 => Err(ApiError::unsupported("structured_outputs")),
            _ => {
                let message = "You can only use one kind of constraints for structured outputs \
                               ('json', 'regex' or 'choice').";
                Err(ApiError::invalid("structured_outputs", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::extract::parse_object;

    fn param(body: Value) -> Option<String> {
        let fields: LaterFields = parse_object(&body.to_string()).unwrap();
        fields.refuse().err().map(|error| error.param.unwrap())
    }

    #[test]
    fn what_is_set_is_refused_by_name() {
        for field in ["use_beam_search", "suffix", "prompt_embeds", "guided_json", "vllm_xargs"] {
            let mut body = Map::new();
            body.insert(field.to_owned(), json!("x"));
            assert_eq!(param(Value::Object(body)).as_deref(), Some(field));
        }
        assert_eq!(param(json!({"use_beam_search": false, "suffix": null, "other": 1})), None);
    }

    #[test]
    fn a_response_format_of_text_is_no_constraint() {
        let format = |format: Value| param(json!({ "response_format": format }));
        assert_eq!(format(json!({"type": "text"})), None);
        assert_eq!(format(Value::Null), None);
        assert_eq!(format(json!({"type": "json_object"})).as_deref(), Some("response_format"));
        assert_eq!(format(json!({"type": "json_schema"})).as_deref(), Some("response_format"));
        let unknown = Some("body.response_format.type");
        assert_eq!(format(json!({"type": "xml"})).as_deref(), unknown);
        assert_eq!(format(json!({})).as_deref(), unknown);
    }

    #[test]
    fn structured_outputs_without_a_constraint_are_none() {
        let outputs = |outputs: Value| param(json!({ "structured_outputs": outputs }));
        assert_eq!(outputs(json!({})), None);
        assert_eq!(outputs(json!({"regex": "a"})).as_deref(), Some("structured_outputs"));
        let both = json!({"regex": "a", "choice": ["a"]});
        assert_eq!(outputs(both).as_deref(), Some("structured_outputs"));
    }
}
