//! The structure of the output: OpenAI's `response_format` and vLLM's `structured_outputs`.
//!
//! This module reads only the fields. Whether a schema or a grammar compiles shows later, and that
//! error is the client's as well.

use std::mem::discriminant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::{OutputFormat, StructuredOutput};
use crate::server::http::{
    error::ApiError,
    fields::{IsSet, flag},
};

/// The fields of a request. Absent and `null` mean the same.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct StructuredOutputFields {
    response_format: Option<Map<String, Value>>,
    structured_outputs: Option<ConstraintFields>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct ConstraintFields {
    json: Option<Value>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    #[serde(deserialize_with = "flag")]
    json_object: Option<bool>,
    structural_tag: Option<Value>,
    #[serde(deserialize_with = "flag")]
    disable_any_whitespace: Option<bool>,
    #[serde(deserialize_with = "flag")]
    disable_additional_properties: Option<bool>,
    whitespace_pattern: IsSet,
}

impl StructuredOutputFields {
    /// Returns whether `structured_outputs` has a kind that excludes a named tool, as in vLLM.
    pub(in crate::server) fn excludes_named_tools(&self) -> bool {
        let kinds = |given: &ConstraintFields| {
            given.json.is_some() || given.regex.is_some() || given.choice.is_some()
        };
        self.structured_outputs.as_ref().is_some_and(kinds)
    }

    /// Returns the requested structure. `None` if there is none.
    ///
    /// # Errors
    /// A 400 that names the field: an unknown kind, a kind without its value, or two kinds.
    /// Of the same kind, `response_format` has precedence.
    pub(in crate::server) fn output(&self) -> Result<Option<StructuredOutput>, ApiError> {
        let format = self.response_format.as_ref().map(response_format).transpose()?.flatten();
        let constraint = self.structured_outputs.as_ref().map(ConstraintFields::output);
        match (format, constraint.transpose()?) {
            // The other field then says how the JSON is written.
            (Some(format), Some(constraint))
                if discriminant(&format) == discriminant(&constraint.format) =>
            {
                Ok(Some(StructuredOutput { format, ..constraint }))
            }
            (Some(_), Some(_)) => Err(too_many("response_format and structured_outputs")),
            (Some(format), None) => Ok(Some(format.into())),
            (None, constraint) => Ok(constraint),
        }
    }
}

impl ConstraintFields {
    fn output(&self) -> Result<StructuredOutput, ApiError> {
        let given = [
            self.json.as_ref().map(|json| OutputFormat::JsonSchema(text_of(json))),
            self.regex.clone().map(OutputFormat::Regex),
            self.choice.clone().map(OutputFormat::Choice),
            self.grammar.clone().map(OutputFormat::Grammar),
            self.json_object.filter(|&is_asked| is_asked).map(|_| OutputFormat::JsonObject),
            self.structural_tag.as_ref().map(|tag| OutputFormat::StructuralTag(text_of(tag))),
        ];
        let mut given = given.into_iter().flatten();
        let Some(format) = given.next() else {
            return Err(refused(
                "You must use one kind of structured outputs constraint but none are specified",
            ));
        };
        if given.next().is_some() {
            // vLLM's words, if the error is about those three.
            let of_three = [self.json.is_some(), self.regex.is_some(), self.choice.is_some()];
            return Err(match of_three.iter().filter(|&&is_given| is_given).count() {
                2.. => refused(
                    "You can only use one kind of constraints for structured outputs ('json', \
                     'regex' or 'choice').",
                ),
                _ => too_many("structured_outputs"),
            });
        }
        let is_json = matches!(format, OutputFormat::JsonSchema(_) | OutputFormat::JsonObject);
        // It is about JSON alone.
        if self.whitespace_pattern.0 && is_json {
            return Err(ApiError::unsupported("structured_outputs.whitespace_pattern"));
        }
        match &format {
            OutputFormat::Choice(choices) if choices.is_empty() => {
                return Err(refused("structured_outputs.choice cannot be an empty list"));
            }
            OutputFormat::Grammar(grammar) if grammar.trim().is_empty() => {
                return Err(refused("structured_outputs.grammar cannot be an empty string"));
            }
            _ => {}
        }
        Ok(StructuredOutput {
            format,
            disable_any_whitespace: self.disable_any_whitespace,
            disable_additional_properties: self.disable_additional_properties.unwrap_or(false),
        })
    }
}

/// Returns the format. `None` stands for any text.
fn response_format(format: &Map<String, Value>) -> Result<Option<OutputFormat>, ApiError> {
    let refuse = |message: &str| Err(ApiError::invalid("response_format", message));
    let kind = format.get("type").and_then(Value::as_str);
    match kind {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::JsonObject)),
        Some("json_schema") => match format.get("json_schema") {
            None | Some(Value::Null) => refuse(
                "When response_format type is 'json_schema', the 'json_schema' field must be \
                 provided.",
            ),
            Some(Value::Object(named)) => match (named.get("name"), named.get("schema")) {
                (Some(Value::String(_)), None | Some(Value::Null)) => {
                    refuse("the 'json_schema' field of response_format must hold a 'schema'")
                }
                (Some(Value::String(_)), Some(schema)) => {
                    Ok(Some(OutputFormat::JsonSchema(text_of(schema))))
                }
                (name, _) => {
                    let place = "body.response_format.json_schema.name";
                    let wanted = match name {
                        None => "Field required",
                        Some(_) => "Input should be a valid string",
                    };
                    Err(ApiError::validation(place, wanted))
                }
            },
            Some(_) => Err(ApiError::validation(
                "body.response_format.json_schema",
                "Input should be a valid dictionary",
            )),
        },
        Some("structural_tag") => {
            let tag = Value::Object(format.clone());
            Ok(Some(OutputFormat::StructuralTag(tag.to_string())))
        }
        _ => Err(ApiError::validation(
            "body.response_format.type",
            "Input should be 'text', 'json_object', 'json_schema' or 'structural_tag'",
        )),
    }
}

/// Returns the text of a schema, which may come as JSON or as its text.
fn text_of(json: &Value) -> String {
    match json {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}

fn too_many(field: &str) -> ApiError {
    refused(&format!(
        "You can only use one kind of structured outputs constraint but multiple are specified in \
         {field}"
    ))
}

fn refused(message: &str) -> ApiError {
    ApiError::invalid("structured_outputs", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::http::extract::parse_object;

    fn read(body: Value) -> Result<Option<StructuredOutput>, ApiError> {
        parse_object::<StructuredOutputFields>(&body.to_string())?.output()
    }

    fn format(body: Value) -> Option<OutputFormat> {
        read(body).unwrap().map(|output| output.format)
    }

    fn param(body: Value) -> Option<String> {
        read(body).unwrap_err().param
    }

    #[test]
    fn a_response_format_says_what_is_meant() {
        let read = |value: Value| format(json!({ "response_format": value }));
        assert_eq!(read(json!({"type": "text"})), None);
        assert_eq!(read(Value::Null), None);
        assert_eq!(read(json!({"type": "json_object"})), Some(OutputFormat::JsonObject));
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let named = json!({"name": "s", "strict": true, "schema": schema});
        let expected = Some(OutputFormat::JsonSchema(schema.to_string()));
        assert_eq!(read(json!({"type": "json_schema", "json_schema": named})), expected);
        let tag = json!({"type": "structural_tag", "structures": [], "triggers": []});
        assert_eq!(read(tag.clone()), Some(OutputFormat::StructuralTag(tag.to_string())));
    }

    #[test]
    fn a_response_format_that_lacks_something_is_refused() {
        let param = |value: Value| param(json!({ "response_format": value }));
        let whole = Some("response_format");
        assert_eq!(param(json!({"type": "json_schema"})).as_deref(), whole);
        let unnamed = json!({"type": "json_schema", "json_schema": {"name": "s"}});
        assert_eq!(param(unnamed).as_deref(), whole);
        let kind = Some("body.response_format.type");
        assert_eq!(param(json!({"type": "xml"})).as_deref(), kind);
        assert_eq!(param(json!({})).as_deref(), kind);
        let place = "body.response_format.json_schema";
        let found = param(json!({"type": "json_schema", "json_schema": 1}));
        assert_eq!(found.as_deref(), Some(place));
        // OpenAI and vLLM ask for a name.
        for nameless in [json!({"schema": {}}), json!({"name": 1, "schema": {}})] {
            let found = param(json!({"type": "json_schema", "json_schema": nameless}));
            assert_eq!(found, Some(format!("{place}.name")));
        }
    }

    #[test]
    fn structured_outputs_are_exactly_one_kind() {
        let read = |value: Value| format(json!({ "structured_outputs": value }));
        let schema = r#"{"type":"null"}"#.to_owned();
        let as_schema = Some(OutputFormat::JsonSchema(schema.clone()));
        assert_eq!(read(json!({"json": {"type": "null"}})), as_schema);
        assert_eq!(read(json!({ "json": schema })), as_schema);
        assert_eq!(read(json!({"regex": "a+"})), Some(OutputFormat::Regex("a+".to_owned())));
        let choice = Some(OutputFormat::Choice(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read(json!({"choice": ["a", "b"], "json_object": false})), choice);
        assert_eq!(read(json!({"json_object": true})), Some(OutputFormat::JsonObject));
        let grammar = OutputFormat::Grammar("root ::= \"a\"".to_owned());
        assert_eq!(read(json!({"grammar": "root ::= \"a\""})), Some(grammar));
        let wrong = [
            json!({}),
            json!({"regex": "a", "choice": ["a"]}),
            json!({"regex": "a", "grammar": "b"}),
            json!({"choice": []}),
            json!({"grammar": " "}),
        ];
        for value in wrong {
            let param = param(json!({ "structured_outputs": value }));
            assert_eq!(param.as_deref(), Some("structured_outputs"));
        }
        for kind in [json!({"json": {}}), json!({"json_object": true})] {
            let mut pattern = json!({ "structured_outputs": kind });
            pattern["structured_outputs"]["whitespace_pattern"] = " ".into();
            assert_eq!(param(pattern).as_deref(), Some("structured_outputs.whitespace_pattern"));
        }
        assert!(read(json!({"regex": "a+", "whitespace_pattern": " "})).is_some());
    }

    #[test]
    fn both_fields_at_once_are_too_many_unless_their_kind_is_the_same() {
        let regex = json!({"regex": "a"});
        let both =
            |kind: &str| json!({"structured_outputs": regex, "response_format": {"type": kind}});
        assert_eq!(param(both("json_object")).as_deref(), Some("structured_outputs"));
        assert!(read(both("text")).unwrap().is_some());
        let schemas = json!({
            "structured_outputs": {"json": {}, "disable_any_whitespace": true},
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "null"}},
            },
        });
        let output = read(schemas).unwrap().unwrap();
        assert_eq!(output.format, OutputFormat::JsonSchema(r#"{"type":"null"}"#.to_owned()));
        assert_eq!(output.disable_any_whitespace, Some(true));
    }

    #[test]
    fn how_json_is_written_is_passed_on() {
        let output = json!({"json": {}, "disable_any_whitespace": true,
                            "disable_additional_properties": true});
        let output = read(json!({ "structured_outputs": output })).unwrap().unwrap();
        assert_eq!(output.disable_any_whitespace, Some(true));
        assert!(output.disable_additional_properties);
        let unsaid = read(json!({"structured_outputs": {"json": {}}})).unwrap().unwrap();
        assert_eq!(unsaid.disable_any_whitespace, None, "the server's setting decides");
    }
}
