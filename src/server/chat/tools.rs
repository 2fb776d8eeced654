//! Tools on offer. The template shows them to the model; its answer stays text.

use serde_json::Value;

use crate::server::error::ApiError;

/// The tools for the template, or why they cannot be offered.
pub(super) fn check_tools(
    tools: Option<&[Value]>,
    choice: Option<&Value>,
) -> Result<Option<Vec<Value>>, ApiError> {
    if tools.is_some_and(<[Value]>::is_empty) {
        return Err(ApiError::invalid("tools", "`tools` must hold at least one tool"));
    }
    for (index, tool) in tools.unwrap_or_default().iter().enumerate() {
        check_tool(&format!("body.tools.{index}"), tool)?;
    }
    check_choice(tools, choice)?;
    Ok(tools.map(<[Value]>::to_vec))
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
    match function.get("name") {
        Some(Value::String(_)) => Ok(()),
        Some(_) => refuse(".function.name", "Input should be a valid string"),
        None => refuse(".function.name", "Field required"),
    }
}

fn check_choice(tools: Option<&[Value]>, choice: Option<&Value>) -> Result<(), ApiError> {
    let refuse = |message: &str| Err(ApiError::invalid("tool_choice", message));
    let choice = match choice {
        None | Some(Value::Null) => return Ok(()),
        Some(choice) if choice == "none" => return Ok(()),
        Some(choice) => choice,
    };
    let Some(tools) = tools else {
        return refuse("When using `tool_choice`, `tools` must be set.");
    };
    match choice {
        Value::String(word) if word == "auto" => Ok(()),
        Value::String(word) if word == "required" => {
            refuse("tool_choice 'required' is not supported by this server: use 'auto' or 'none'")
        }
        Value::Object(_) => {
            let name = &choice["function"]["name"];
            if !tools.iter().any(|tool| &tool["function"]["name"] == name) {
                return refuse(
                    "The tool specified in `tool_choice` does not match any of the specified \
                     `tools`",
                );
            }
            refuse("a named tool_choice is not supported by this server: use 'auto' or 'none'")
        }
        _ => refuse("tool_choice must be 'none', 'auto', 'required' or a named function"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn param(tools: Value, choice: Value) -> Option<String> {
        let checked = check_tools(tools.as_array().map(Vec::as_slice), Some(&choice));
        checked.err().map(|error| error.param.unwrap())
    }

    #[test]
    fn tools_need_a_name() {
        let named = json!([{"type": "function", "function": {"name": "now"}}]);
        assert_eq!(param(named.clone(), json!("auto")), None);
        assert_eq!(param(named, json!("none")), None);
        let wrong = [
            (json!([]), "tools"),
            (json!([1]), "body.tools.0"),
            (json!([{"type": "function"}]), "body.tools.0.function"),
            (json!([{"type": "function", "function": {}}]), "body.tools.0.function.name"),
            (json!([{"function": {"name": 1}}]), "body.tools.0.function.name"),
            (json!([{"type": "x", "function": {"name": "a"}}]), "body.tools.0.type"),
        ];
        for (tools, place) in wrong {
            assert_eq!(param(tools.clone(), Value::Null).as_deref(), Some(place), "{tools}");
        }
    }

    #[test]
    fn a_choice_needs_tools_and_must_be_possible() {
        let tools = json!([{"type": "function", "function": {"name": "now"}}]);
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        for choice in [json!("required"), named("now"), named("later"), json!("maybe"), json!(1)] {
            assert_eq!(param(tools.clone(), choice.clone()).as_deref(), Some("tool_choice"));
            assert_eq!(param(Value::Null, choice).as_deref(), Some("tool_choice"));
        }
        assert_eq!(param(Value::Null, json!("none")), None);
        assert_eq!(param(Value::Null, json!("auto")).as_deref(), Some("tool_choice"));
    }
}
