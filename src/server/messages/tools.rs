//! The tools of a request, and whether one must be called.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::server::{
    http::{
        error::ApiError,
        fields::{IsSet, flag},
    },
    turn::{ToolChoice, shown_tool},
};

/// One of `tools`. Only a client's own tools are accepted, because this server runs none itself.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(super) struct ToolField {
    r#type: Option<String>,
    name: Option<String>,
    description: Option<String>,
    input_schema: Option<Map<String, Value>>,
    #[serde(deserialize_with = "flag")]
    strict: Option<bool>,
    allowed_callers: Option<Vec<String>>,
    defer_loading: IsSet,
    input_examples: IsSet,
}

/// `tool_choice`
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(super) struct ToolChoiceField {
    r#type: Option<String>,
    name: Option<String>,
    #[serde(deserialize_with = "flag")]
    disable_parallel_tool_use: Option<bool>,
}

impl ToolChoiceField {
    /// Returns whether one turn may hold several calls.
    pub(super) fn is_parallel(&self) -> bool {
        !self.disable_parallel_tool_use.unwrap_or(false)
    }
}

/// Returns the index of the first tool whose calls must match its schema.
pub(super) fn first_strict(tools: &[ToolField]) -> Option<usize> {
    tools.iter().position(|tool| tool.strict == Some(true))
}

/// Returns `tools` as chat completions have them. `None` if the list is empty.
///
/// # Errors
/// If one is malformed, or asks for a feature that this server does not have.
pub(super) fn chat_tools(tools: &[ToolField]) -> Result<Option<Vec<Value>>, ApiError> {
    let chat: Result<Vec<Value>, ApiError> = tools
        .iter()
        .enumerate()
        .map(|(index, tool)| tool.chat_tool(&format!("body.tools.{index}")))
        .collect();
    Ok(Some(chat?).filter(|chat| !chat.is_empty()))
}

/// Reads `tool_choice`. If it is absent, it is auto where there are tools.
///
/// # Errors
/// If it names a tool that the request does not define, asks for a call without tools, or is
/// malformed.
pub(super) fn tool_choice(
    choice: Option<&ToolChoiceField>,
    tools: &[ToolField],
) -> Result<ToolChoice, ApiError> {
    let refuse = |message: &str| Err(ApiError::invalid("tool_choice", message));
    let Some(choice) = choice else {
        return Ok(if tools.is_empty() { ToolChoice::None } else { ToolChoice::Auto });
    };
    match (choice.r#type.as_deref(), &choice.name) {
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("auto" | "any" | "tool"), _) if tools.is_empty() => {
            refuse("tool_choice: there are no `tools` to choose from")
        }
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("any"), _) => Ok(ToolChoice::Required),
        (Some("tool"), None) => {
            Err(ApiError::validation("body.tool_choice.name", "Field required"))
        }
        (Some("tool"), Some(name)) => {
            if tools.iter().any(|tool| tool.name.as_ref() == Some(name)) {
                return Ok(ToolChoice::Named(name.clone()));
            }
            refuse("tool_choice: none of `tools` has that name")
        }
        (Some(_), _) => {
            let wanted = "Input should be 'auto', 'any', 'tool' or 'none'";
            Err(ApiError::validation("body.tool_choice.type", wanted))
        }
        (None, _) => Err(ApiError::validation("body.tool_choice.type", "Field required")),
    }
}

impl ToolField {
    fn chat_tool(&self, place: &str) -> Result<Value, ApiError> {
        self.refuse(place)?;
        let required =
            |field: &str| ApiError::validation(&format!("{place}.{field}"), "Field required");
        let name = self.name.as_deref().ok_or_else(|| required("name"))?;
        if name.is_empty() {
            let message = "String should have at least 1 character";
            return Err(ApiError::validation(&format!("{place}.name"), message));
        }
        let schema = self.input_schema.as_ref().ok_or_else(|| required("input_schema"))?;
        let mut function = json!({"name": name});
        if let Some(description) = &self.description {
            function["description"] = Value::from(description.as_str());
        }
        let mut schema = schema.clone();
        // As in vLLM, a schema without a type is an object's.
        schema.entry("type").or_insert_with(|| Value::from("object"));
        function["parameters"] = Value::Object(schema);
        if let Some(strict) = self.strict {
            function["strict"] = Value::Bool(strict);
        }
        Ok(shown_tool(&json!({"type": "function", "function": function})))
    }

    fn refuse(&self, place: &str) -> Result<(), ApiError> {
        let refuse = |field: &str, message: String| {
            let place = format!("{place}.{field}");
            Err(ApiError::invalid(&place, format!("{place}: {message}")))
        };
        if let Some(kind) = self.r#type.as_ref().filter(|kind| *kind != "custom") {
            return refuse("type", format!("this server has no tool '{kind}': only custom tools"));
        }
        let callers = self.allowed_callers.iter().flatten();
        if let Some(caller) = callers.into_iter().find(|caller| *caller != "direct") {
            return refuse("allowed_callers", format!("'{caller}' is not supported"));
        }
        let unsupported =
            [("defer_loading", self.defer_loading), ("input_examples", self.input_examples)];
        match unsupported.iter().find(|(_, given)| given.0) {
            Some((field, _)) => refuse(field, "not supported by this server".to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(tools: Value) -> Vec<ToolField> {
        serde_json::from_value(tools).unwrap()
    }

    fn now() -> Value {
        json!({"name": "now", "input_schema": {"type": "object"}})
    }

    fn refused(tool: Value) -> Option<String> {
        chat_tools(&tools(json!([tool]))).err().map(|error| error.param.unwrap())
    }

    #[test]
    fn a_tool_is_a_function() {
        let tool = json!({
            "type": "custom", "name": "now", "description": "The time.",
            "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"},
            "allowed_callers": ["direct"], "strict": false,
        });
        let function = json!({
            "name": "now", "description": "The time.", "parameters": {"type": "object"},
            "strict": false,
        });
        let chat = json!([{"type": "function", "function": function}]);
        let read = chat_tools(&tools(json!([tool]))).unwrap();
        assert_eq!(read.map(Value::from), Some(chat));
        assert_eq!(chat_tools(&[]), Ok(None));
    }

    #[test]
    fn a_tool_that_is_not_the_clients_is_rejected() {
        let with = |field: &str, value: Value| {
            let mut tool = now();
            tool[field] = value;
            tool
        };
        let wrong = [
            (json!({"type": "web_search_20250305", "name": "web_search"}), "type"),
            (json!({"name": "now"}), "input_schema"),
            (json!({"input_schema": {}}), "name"),
            (with("name", json!("")), "name"),
            (with("defer_loading", json!(true)), "defer_loading"),
            (with("input_examples", json!([{}])), "input_examples"),
            (with("allowed_callers", json!(["code_execution_20250825"])), "allowed_callers"),
        ];
        for (tool, field) in wrong {
            let place = refused(tool.clone());
            assert_eq!(place, Some(format!("body.tools.0.{field}")), "{tool}");
        }
        assert_eq!(refused(with("strict", json!(true))), None);
    }

    #[test]
    fn a_choice_needs_tools_and_must_be_possible() {
        let read = |choice: Value, offered: Value| {
            let choice: Option<ToolChoiceField> = serde_json::from_value(choice).unwrap();
            let read = tool_choice(choice.as_ref(), &tools(offered));
            read.map_err(|error| error.param.unwrap())
        };
        let table = [
            (Value::Null, Ok(ToolChoice::Auto)),
            (json!({"type": "auto"}), Ok(ToolChoice::Auto)),
            (json!({"type": "any"}), Ok(ToolChoice::Required)),
            (json!({"type": "none"}), Ok(ToolChoice::None)),
            (json!({"type": "tool", "name": "now"}), Ok(ToolChoice::Named("now".to_owned()))),
            (json!({"type": "tool", "name": "later"}), Err("tool_choice".to_owned())),
            (json!({"type": "tool"}), Err("body.tool_choice.name".to_owned())),
            (json!({"type": "required"}), Err("body.tool_choice.type".to_owned())),
            (json!({}), Err("body.tool_choice.type".to_owned())),
        ];
        for (choice, expected) in table {
            assert_eq!(read(choice.clone(), json!([now()])), expected, "{choice}");
        }
        assert_eq!(read(Value::Null, json!([])), Ok(ToolChoice::None));
        assert_eq!(read(json!({"type": "none"}), json!([])), Ok(ToolChoice::None));
        for choice in ["auto", "any", "tool"] {
            let refused = read(json!({"type": choice, "name": "now"}), json!([]));
            assert_eq!(refused, Err("tool_choice".to_owned()), "{choice}");
        }
    }
}
