//! `text`: the structure of the answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::{OutputFormat, StructuredOutput};
use crate::server::http::error::ApiError;

/// `text` as the client sent it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct TextFields {
    pub(super) format: Option<Value>,
    pub(super) verbosity: Option<Verbosity>,
}

/// How long the answer shall be, for templates that know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verbosity {
    Low,
    Medium,
    High,
}

impl Verbosity {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl TextFields {
    /// Returns the constraint. `None` for plain text.
    ///
    /// # Errors
    /// If the format is unknown or lacks its schema.
    pub(super) fn constraint(&self) -> Result<Option<StructuredOutput>, ApiError> {
        let Some(format) = &self.format else { return Ok(None) };
        let wrong = |key: &str, message: &str| {
            Err(ApiError::validation(&format!("body.text.format{key}"), message))
        };
        if !format.is_object() {
            return wrong("", "Input should be a valid dictionary");
        }
        match format["type"].as_str() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(OutputFormat::JsonObject.into())),
            Some("json_schema") => match (&format["name"], &format["schema"]) {
                (Value::String(_), schema @ Value::Object(_)) => {
                    Ok(Some(OutputFormat::JsonSchema(schema.to_string()).into()))
                }
                (Value::String(_), _) => wrong(".schema", "Input should be a valid dictionary"),
                _ => wrong(".name", "Input should be a valid string"),
            },
            _ => wrong(".type", "Input should be 'text', 'json_object' or 'json_schema'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn constraint(format: Value) -> Result<Option<OutputFormat>, String> {
        let text = TextFields { format: Some(format), verbosity: None };
        let constraint = text.constraint().map_err(|error| error.param.unwrap())?;
        Ok(constraint.map(|output| output.format))
    }

    #[test]
    fn formats() {
        assert_eq!(TextFields::default().constraint(), Ok(None));
        assert_eq!(constraint(json!({"type": "text"})), Ok(None));
        assert_eq!(constraint(json!({"type": "json_object"})), Ok(Some(OutputFormat::JsonObject)));
        let schema = json!({"type": "json_schema", "name": "a", "schema": {"type": "object"}});
        let wanted = OutputFormat::JsonSchema(r#"{"type":"object"}"#.to_owned());
        assert_eq!(constraint(schema), Ok(Some(wanted)));
    }

    #[test]
    fn a_wrong_format_is_rejected_by_its_place() {
        let wrong = [
            (json!("json"), "body.text.format"),
            (json!({}), "body.text.format.type"),
            (json!({"type": "xml"}), "body.text.format.type"),
            (json!({"type": "json_schema", "schema": {}}), "body.text.format.name"),
            (json!({"type": "json_schema", "name": "a"}), "body.text.format.schema"),
            (json!({"type": "json_schema", "json_schema": {}}), "body.text.format.name"),
        ];
        for (format, place) in wrong {
            assert_eq!(constraint(format.clone()), Err(place.to_owned()), "{format}");
        }
    }
}
