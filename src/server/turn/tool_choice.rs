//! The tools of a request, and whether one must be called.

use serde_json::{Value, json};

use super::allowed_tools::{AllowedForm, allow};
use crate::{server::http::error::ApiError, turn::ToolChoice};

impl ToolChoice {
    /// Reads `tool_choice` of a chat completion. If it is absent, it is auto where there are tools.
    /// One that allows only some tools removes the others from `tools`.
    ///
    /// # Errors
    /// If it names a tool that the request does not define, asks for a call without tools, or is
    /// malformed.
    pub(in crate::server) fn read_and_limit(
        choice: Option<&Value>,
        tools: &mut Option<Vec<Value>>,
    ) -> Result<Self, ApiError> {
        match choice {
            Some(Value::Object(fields)) if fields.get("type") == Some(&"allowed_tools".into()) => {
                if tools.is_none() {
                    return Err(without_tools());
                }
                allow(fields, AllowedForm::Nested, tools)
            }
            choice => Self::read(choice, tools.as_deref()),
        }
    }

    /// Reads any other `tool_choice`.
    ///
    /// # Errors
    /// As [`Self::read_and_limit`].
    pub(in crate::server) fn read(
        choice: Option<&Value>,
        tools: Option<&[Value]>,
    ) -> Result<Self, ApiError> {
        let refuse = |message: &str| Err(ApiError::invalid("tool_choice", message));
        let choice = match (choice, tools) {
            (None | Some(Value::Null), None) => return Ok(Self::None),
            (None | Some(Value::Null), Some(_)) => return Ok(Self::Auto),
            (Some(choice), _) if choice == "none" => return Ok(Self::None),
            (Some(choice), _) => choice,
        };
        let Some(tools) = tools else {
            return Err(without_tools());
        };
        match choice {
            Value::String(word) if word == "auto" => Ok(Self::Auto),
            Value::String(word) if word == "required" => Ok(Self::Required),
            Value::Object(_) => match choice["function"]["name"].as_str() {
                Some(name) if tools.iter().any(|tool| tool["function"]["name"] == name) => {
                    Ok(Self::Named(name.to_owned()))
                }
                _ => refuse(
                    "The tool specified in `tool_choice` does not match any of the specified \
                     `tools`",
                ),
            },
            _ => refuse("tool_choice must be 'none', 'auto', 'required' or a named function"),
        }
    }
}

fn without_tools() -> ApiError {
    ApiError::invalid("tool_choice", "When using `tool_choice`, `tools` must be set.")
}

/// Rejects `tools` of a chat completion that no template could show.
///
/// # Errors
/// If the list is empty, or holds an item that is no function with a name.
pub(in crate::server) fn check_tools(tools: Option<&[Value]>) -> Result<(), ApiError> {
    if tools.is_some_and(<[Value]>::is_empty) {
        return Err(ApiError::invalid("tools", "`tools` must hold at least one tool"));
    }
    let mut places = tools.unwrap_or_default().iter().enumerate();
    places.try_for_each(|(index, tool)| check_tool(&format!("body.tools.{index}"), tool))
}

fn check_tool(place: &str, tool: &Value) -> Result<(), ApiError> {
    let refuse =
        |key: &str, message: &str| Err(ApiError::validation(&format!("{place}{key}"), message));
    let Value::Object(tool) = tool else {
        return refuse("", "Input should be a valid dictionary");
    };
    if tool.get("type").is_some_and(|kind| kind != "function") {
        return refuse(".type", "Input should be 'function'");
    }
    let Some(Value::Object(function)) = tool.get("function") else {
        return refuse(".function", "Input should be a valid dictionary");
    };
    match function.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(_) => return refuse(".function.parameters", "Input should be a valid dictionary"),
    }
    match function.get("name") {
        Some(Value::String(_)) => Ok(()),
        Some(_) => refuse(".function.name", "Input should be a valid string"),
        None => refuse(".function.name", "Field required"),
    }
}

/// Returns a tool as vLLM shows it to chat templates, which often print it as JSON: the fields that
/// are known, in one order, and null for an absent description and absent parameters.
pub(in crate::server) fn shown_tool(tool: &Value) -> Value {
    let function = &tool["function"];
    let (name, description) = (&function["name"], &function["description"]);
    let parameters = &function["parameters"];
    let mut shown = json!({"name": name, "description": description, "parameters": parameters});
    let given =
        |from: &Value, field: &str| from.get(field).filter(|value| !value.is_null()).cloned();
    if let Some(strict) = given(function, "strict") {
        shown["strict"] = strict;
    }
    let defers = given(tool, "defer_loading");
    if let Some(defers) = given(function, "defer_loading").or_else(|| defers.clone()) {
        shown["defer_loading"] = defers;
    }
    let mut tool = json!({"type": "function", "function": shown});
    if let Some(defers) = defers {
        tool["defer_loading"] = defers;
    }
    tool
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcomes are those of `ChatCompletionToolsParam.model_dump` in vLLM 0.33, as text.
    #[test]
    fn templates_see_the_fields_of_a_tool_in_one_order() {
        let shown = |tool: Value| shown_tool(&tool).to_string();
        assert_eq!(
            shown(json!({"function": {"name": "a"}})),
            r#"{"type":"function","function":{"name":"a","description":null,"parameters":null}}"#
        );
        let function = json!({
            "strict": false, "parameters": {"b": 1, "a": 2}, "own": 1, "description": "d",
            "name": "a",
        });
        assert_eq!(
            shown(json!({"own": 1, "function": function, "type": "function"})),
            "{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"d\",\
             \"parameters\":{\"b\":1,\"a\":2},\"strict\":false}}"
        );
        assert_eq!(
            shown(json!({"defer_loading": true, "function": {"name": "a", "strict": null}})),
            "{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":null,\
             \"parameters\":null,\"defer_loading\":true},\"defer_loading\":true}"
        );
    }

    fn tools() -> Value {
        json!([{"type": "function", "function": {"name": "now"}}])
    }

    #[test]
    fn tools_are_functions_with_a_name() {
        let refused = |tools: Value| check_tools(tools.as_array().map(Vec::as_slice)).err();
        assert_eq!(refused(tools()), None);
        assert_eq!(refused(Value::Null), None);
        let wrong = [
            (json!([]), "tools"),
            (json!([1]), "body.tools.0"),
            (json!([{"type": "function"}]), "body.tools.0.function"),
            (json!([{"type": "function", "function": {}}]), "body.tools.0.function.name"),
            (json!([{"function": {"name": 1}}]), "body.tools.0.function.name"),
            (json!([{"type": "x", "function": {"name": "a"}}]), "body.tools.0.type"),
            (
                json!([{"function": {"name": "a", "parameters": []}}]),
                "body.tools.0.function.parameters",
            ),
        ];
        for (tools, place) in wrong {
            let param = refused(tools.clone()).and_then(|error| error.param);
            assert_eq!(param.as_deref(), Some(place), "{tools}");
        }
    }

    #[test]
    fn a_choice_needs_tools_and_must_be_possible() {
        let read = |tools: Value, choice: Value| {
            let mut tools = tools.as_array().cloned();
            let choice = ToolChoice::read_and_limit(Some(&choice), &mut tools);
            choice.map_err(|error| error.param.unwrap())
        };
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        assert_eq!(read(tools(), Value::Null), Ok(ToolChoice::Auto));
        assert_eq!(read(tools(), json!("auto")), Ok(ToolChoice::Auto));
        assert_eq!(read(tools(), json!("none")), Ok(ToolChoice::None));
        assert_eq!(read(tools(), json!("required")), Ok(ToolChoice::Required));
        assert_eq!(read(tools(), named("now")), Ok(ToolChoice::Named("now".to_owned())));
        let allowed = json!({"mode": "auto", "tools": [named("now")]});
        let allowed = json!({"type": "allowed_tools", "allowed_tools": allowed});
        assert_eq!(read(tools(), allowed.clone()), Ok(ToolChoice::Allowed));
        for wrong in [named("later"), json!({}), json!("maybe"), json!(1)] {
            assert_eq!(read(tools(), wrong), Err("tool_choice".to_owned()));
        }
        for choice in [Value::Null, json!("none")] {
            assert_eq!(read(Value::Null, choice), Ok(ToolChoice::None));
        }
        for choice in [json!("auto"), json!("required"), named("now"), allowed] {
            assert_eq!(read(Value::Null, choice), Err("tool_choice".to_owned()));
        }
    }
}
