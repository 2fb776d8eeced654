//! Fields of the API that this server does not support. They are rejected, because an answer that
//! ignores one would be wrong.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::server::http::{
    error::ApiError,
    fields::{Int, IsSet, unless_empty},
};

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct UnsupportedFields {
    suffix: IsSet,
    prompt_embeds: IsSet,
    audio: IsSet,
    functions: IsSet,
    function_call: IsSet,
    guided_json: IsSet,
    guided_regex: IsSet,
    guided_choice: IsSet,
    guided_grammar: IsSet,
    thinking_token_budget: Option<Int>,
    watermarking: IsSet,
    return_weight_versions: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    kv_transfer_params: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    ec_transfer_params: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    mm_processor_kwargs: IsSet,
    #[serde(deserialize_with = "unless_empty")]
    media_io_kwargs: IsSet,
}

impl UnsupportedFields {
    /// Returns an error that names the first field that is not supported.
    pub(in crate::server) fn refuse(&self) -> Result<(), ApiError> {
        self.refuse_but(&[])
    }

    /// Returns the same for a route that supports the fields `known`.
    pub(in crate::server) fn refuse_but(&self, known: &[&str]) -> Result<(), ApiError> {
        if self.suffix.0 {
            return Err(ApiError::invalid("suffix", "suffix is not currently supported"));
        }
        // -1 means no limit.
        let thinks_within = self.thinking_token_budget.is_some_and(|budget| budget != Int(-1));
        let fields = [
            ("prompt_embeds", self.prompt_embeds),
            ("audio", self.audio),
            ("functions", self.functions),
            ("function_call", self.function_call),
            ("guided_json", self.guided_json),
            ("guided_regex", self.guided_regex),
            ("guided_choice", self.guided_choice),
            ("guided_grammar", self.guided_grammar),
            ("thinking_token_budget", IsSet(thinks_within)),
            ("watermarking", self.watermarking),
            ("return_weight_versions", self.return_weight_versions),
            ("kv_transfer_params", self.kv_transfer_params),
            ("ec_transfer_params", self.ec_transfer_params),
            ("mm_processor_kwargs", self.mm_processor_kwargs),
            ("media_io_kwargs", self.media_io_kwargs),
        ];
        match fields.iter().find(|(name, given)| given.0 && !known.contains(name)) {
            Some((field, _)) => Err(ApiError::unsupported(field)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::server::http::extract::parse_object;

    fn param(body: Value) -> Option<String> {
        let fields: UnsupportedFields = parse_object(&body.to_string()).unwrap();
        fields.refuse().err().map(|error| error.param.unwrap())
    }

    #[test]
    fn a_set_field_is_rejected_by_name() {
        for field in ["audio", "suffix", "prompt_embeds", "guided_json", "return_weight_versions"] {
            let mut body = Map::new();
            body.insert(field.to_owned(), json!("x"));
            assert_eq!(param(Value::Object(body)).as_deref(), Some(field));
        }
        assert_eq!(param(json!({"audio": false, "suffix": null, "other": 1})), None);
        // vLLM takes an empty object for none there.
        for field in ["kv_transfer_params", "ec_transfer_params", "media_io_kwargs"] {
            let with = |value: Value| Value::Object(Map::from_iter([(field.to_owned(), value)]));
            assert_eq!((param(with(json!({}))), param(with(json!(null)))), (None, None));
            assert_eq!(param(with(json!({"a": false}))).as_deref(), Some(field));
        }
        assert_eq!(param(json!({"guided_json": {}})).as_deref(), Some("guided_json"));
        let body = json!({"thinking_token_budget": 3}).to_string();
        let fields: UnsupportedFields = parse_object(&body).unwrap();
        assert!(fields.refuse().is_err());
        assert!(fields.refuse_but(&["thinking_token_budget"]).is_ok());
        assert_eq!(param(json!({"thinking_token_budget": -1})), None, "no limit");
        // vLLM 0.33 reads them on its `/render` routes only.
        assert_eq!(param(json!({"return_token_offsets": true, "mm_payload": "none"})), None);
    }
}
