//! `tools` and `tool_choice`, in the form that chat templates and parsers know.

use serde_json::{Map, Value, json};

use super::{
    freeform,
    tool_names::{ToolNames, joined},
};
use crate::server::{
    http::error::ApiError,
    turn::{AllowedForm, ToolChoice, allow, shown_tool},
};

/// Returns the tools, as chat completions have them. `None` if there are none. A custom tool
/// becomes a function, and the functions of a namespace stand among the others.
///
/// # Errors
/// If a tool is none of these, or has no name.
pub(super) fn functions(tools: &[Value]) -> Result<Option<Vec<Value>>, ApiError> {
    let mut functions = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let place = format!("body.tools.{i}");
        match tool.get("type") {
            Some(kind) if kind == "namespace" => namespace(&place, tool, &mut functions)?,
            _ => functions.push(function(&place, tool)?),
        }
    }
    Ok((!functions.is_empty()).then_some(functions))
}

/// Adds the functions of a namespace, under the names that the model sees.
fn namespace(place: &str, tool: &Value, functions: &mut Vec<Value>) -> Result<(), ApiError> {
    let wrong =
        |key: &str, message: &str| Err(ApiError::validation(&format!("{place}.{key}"), message));
    let Some(name) = tool["name"].as_str().filter(|name| !name.is_empty()) else {
        return wrong("name", "Input should be a valid string, not empty");
    };
    let Some(own) = tool["tools"].as_array() else {
        return wrong("tools", "Input should be a valid list");
    };
    for (i, tool) in own.iter().enumerate() {
        let place = format!("{place}.tools.{i}");
        if tool["type"] != "function" {
            let message = "Input should be 'function'";
            return Err(ApiError::validation(&format!("{place}.type"), message));
        }
        let mut shown = tool.clone();
        if let Some(own) = tool["name"].as_str().filter(|own| !own.is_empty()) {
            shown["name"] = joined(name, own).into();
        }
        functions.push(function(&place, &shown)?);
    }
    Ok(())
}

fn function(place: &str, tool: &Value) -> Result<Value, ApiError> {
    let wrong =
        |key: &str, message: &str| Err(ApiError::validation(&format!("{place}{key}"), message));
    let Value::Object(tool) = tool else {
        return wrong("", "Input should be a valid dictionary");
    };
    let is_custom = match tool.get("type") {
        Some(Value::String(kind)) if kind == "function" => false,
        Some(Value::String(kind)) if kind == "custom" => true,
        Some(Value::String(kind)) => return Err(unknown_tool("tools", kind)),
        Some(_) => return wrong(".type", "Input should be a valid string"),
        None => return wrong(".type", "Field required"),
    };
    match tool.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {}
        Some(_) => return wrong(".name", "Input should be a valid string, not empty"),
        None => return wrong(".name", "Field required"),
    }
    match tool.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(_) => return wrong(".parameters", "Input should be a valid dictionary"),
    }
    let fields: &[&str] = match is_custom {
        true => &["name", "description"],
        false => &["name", "description", "parameters", "strict", "defer_loading"],
    };
    let given = fields.iter().filter_map(|&field| Some((field, tool.get(field)?)));
    let given = given.filter(|(_, value)| !value.is_null());
    let mut function: Map<String, Value> =
        given.map(|(field, value)| (field.to_owned(), value.clone())).collect();
    if is_custom {
        check_format(tool.get("format"))?;
        function.insert("parameters".to_owned(), freeform::parameters());
    }
    Ok(shown_tool(&json!({"type": "function", "function": function})))
}

/// Rejects a grammar of a custom tool's input, as vLLM does.
fn check_format(format: Option<&Value>) -> Result<(), ApiError> {
    let kind = format.filter(|format| !format.is_null()).map(|format| &format["type"]);
    match kind.is_none_or(|kind| kind == "text") {
        true => Ok(()),
        false => {
            let message = "Custom tools with a grammar format are not supported; only free-form \
                           text custom tools are accepted.";
            Err(ApiError::invalid("tools", message))
        }
    }
}

fn unknown_tool(param: &str, kind: &str) -> ApiError {
    let message = format!(
        "tools of type '{kind}' are not supported by this server: only 'function', 'custom' and \
         'namespace' are"
    );
    ApiError::invalid(param, message)
}

/// Returns whether to call one of `tools`. A choice that allows only some of them removes the
/// others.
///
/// # Errors
/// If it names a tool that the request does not define, or is malformed.
pub(super) fn choice(
    choice: Option<&Value>,
    names: &ToolNames,
    tools: &mut Option<Vec<Value>>,
) -> Result<ToolChoice, ApiError> {
    let Some(Value::Object(fields)) = choice else {
        // Without tools there is nothing to choose.
        let is_auto = choice.is_some_and(|choice| choice == "auto");
        let choice = choice.filter(|_| !(is_auto && tools.is_none()));
        return ToolChoice::read(choice, tools.as_deref());
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("function" | "custom") => {
            let name = fields.get("name");
            let shown = name.and_then(Value::as_str).map(|name| names.shown(name)).transpose()?;
            let name = shown.map(Value::from).or_else(|| name.cloned());
            let named = json!({"type": "function", "function": {"name": name}});
            ToolChoice::read(Some(&named), tools.as_deref())
        }
        Some("allowed_tools") => allow(fields, AllowedForm::Flat, tools),
        Some(kind) => Err(unknown_tool("tool_choice", kind)),
        None => Err(ApiError::validation("body.tool_choice.type", "Field required")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Value {
        json!({"type": "function", "name": name, "parameters": {"type": "object"}, "strict": true})
    }

    fn chosen(tools: &Value, wanted: Value) -> Result<(ToolChoice, usize), String> {
        let names = ToolNames::of(tools.as_array().unwrap());
        let mut tools = functions(tools.as_array().unwrap()).unwrap();
        let choice = choice(Some(&wanted), &names, &mut tools);
        let choice = choice.map_err(|error| error.param.unwrap())?;
        Ok((choice, tools.map_or(0, |tools| tools.len())))
    }

    #[test]
    fn a_function_stands_in_an_object_of_its_own() {
        let mut described = tool("now");
        described["description"] = json!("tells the time");
        described["async"] = json!(null);
        let function = json!({
            "name": "now",
            "description": "tells the time",
            "parameters": {"type": "object"},
            "strict": true,
        });
        let wanted = json!([{"type": "function", "function": function}]);
        assert_eq!(functions(&[described]), Ok(wanted.as_array().cloned()));
        assert_eq!(functions(&[]), Ok(None));
    }

    #[test]
    fn a_custom_tool_is_a_function_of_one_string() {
        let custom = json!({"type": "custom", "name": "patch", "description": "changes files"});
        let shown = functions(std::slice::from_ref(&custom)).unwrap().unwrap();
        let function = &shown[0]["function"];
        assert_eq!((&function["name"], &shown[0]["type"]), (&json!("patch"), &json!("function")));
        assert_eq!(function["description"], "changes files");
        assert_eq!(function["parameters"]["required"], json!(["input"]));
        let tools = json!([custom]);
        let named = chosen(&tools, json!({"type": "custom", "name": "patch"}));
        assert_eq!(named, Ok((ToolChoice::Named("patch".to_owned()), 1)));
        let allowed = json!({
            "type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "patch"}],
        });
        assert_eq!(chosen(&tools, allowed), Ok((ToolChoice::Allowed, 1)));
        for (format, is_taken) in [
            (json!(null), true),
            (json!({"type": "text"}), true),
            (json!({"type": "grammar", "syntax": "lark", "definition": "start: A"}), false),
        ] {
            let tool = json!({"type": "custom", "name": "patch", "format": format});
            assert_eq!(functions(&[tool]).is_ok(), is_taken, "{format}");
        }
        let unnamed = functions(&[json!({"type": "custom"})]).unwrap_err();
        assert_eq!(unnamed.param.as_deref(), Some("body.tools.0.name"));
    }

    #[test]
    fn functions_of_a_namespace_stand_among_the_others() {
        let space =
            json!({"type": "namespace", "name": "crm", "tools": [tool("find"), tool("list")]});
        let tools = json!([tool("now"), space]);
        let shown = functions(tools.as_array().unwrap()).unwrap().unwrap();
        let names: Vec<_> = shown.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["now", "crm__find", "crm__list"]);
        assert_eq!(shown[1]["function"]["strict"], true);
        let named = |name: &str| json!({"type": "function", "name": name});
        let find = ToolChoice::Named("crm__find".to_owned());
        assert_eq!(chosen(&tools, named("find")), Ok((find.clone(), 3)));
        assert_eq!(chosen(&tools, named("crm__find")), Ok((find, 3)));
        let spaces = [
            (json!({"type": "namespace", "tools": []}), "body.tools.0.name"),
            (json!({"type": "namespace", "name": "a"}), "body.tools.0.tools"),
            (
                json!({"type": "namespace", "name": "a", "tools": [{"type": "custom"}]}),
                "body.tools.0.tools.0.type",
            ),
            (
                json!({"type": "namespace", "name": "a", "tools": [{"type": "function"}]}),
                "body.tools.0.tools.0.name",
            ),
        ];
        for (space, place) in spaces {
            let param = functions(&[space]).unwrap_err().param;
            assert_eq!(param.as_deref(), Some(place));
        }
    }

    #[test]
    fn other_tools_are_refused_by_name() {
        let error = functions(&[json!({"type": "web_search"})]).unwrap_err();
        assert!(error.message.contains("'web_search'"), "{error:?}");
        assert_eq!(error.param.as_deref(), Some("tools"));
        let wrong = [
            (json!(1), "body.tools.0"),
            (json!({}), "body.tools.0.type"),
            (json!({"type": 1}), "body.tools.0.type"),
            (json!({"type": "function"}), "body.tools.0.name"),
            (json!({"type": "function", "function": {"name": "now"}}), "body.tools.0.name"),
            (json!({"type": "function", "name": ""}), "body.tools.0.name"),
            (json!({"type": "function", "name": "a", "parameters": 1}), "body.tools.0.parameters"),
        ];
        for (tool, place) in wrong {
            let param = functions(std::slice::from_ref(&tool)).unwrap_err().param;
            assert_eq!(param.as_deref(), Some(place), "{tool}");
        }
    }

    #[test]
    fn choices() {
        let (none, two) = (json!([]), json!([tool("now"), tool("later")]));
        let named = |name: &str| json!({"type": "function", "name": name});
        let allow = |mode: &str, names: &[&str]| {
            let tools: Vec<Value> = names.iter().map(|name| named(name)).collect();
            json!({"type": "allowed_tools", "mode": mode, "tools": tools})
        };
        assert_eq!(chosen(&none, json!(null)), Ok((ToolChoice::None, 0)));
        assert_eq!(chosen(&none, json!("auto")), Ok((ToolChoice::None, 0)));
        assert_eq!(chosen(&two, json!(null)), Ok((ToolChoice::Auto, 2)));
        assert_eq!(chosen(&two, json!("none")), Ok((ToolChoice::None, 2)));
        assert_eq!(chosen(&two, json!("required")), Ok((ToolChoice::Required, 2)));
        let later = ToolChoice::Named("later".to_owned());
        assert_eq!(chosen(&two, named("later")), Ok((later, 2)));
        assert_eq!(chosen(&two, allow("auto", &["now"])), Ok((ToolChoice::Allowed, 1)));
        let both = allow("required", &["now", "later"]);
        assert_eq!(chosen(&two, both), Ok((ToolChoice::Required, 2)));
        for wrong in [
            named("never"),
            json!("maybe"),
            allow("auto", &["never"]),
            allow("auto", &[]),
            json!({"type": "web_search"}),
        ] {
            assert_eq!(chosen(&two, wrong), Err("tool_choice".to_owned()));
        }
        assert_eq!(chosen(&none, json!("required")), Err("tool_choice".to_owned()));
        assert_eq!(chosen(&two, json!({})), Err("body.tool_choice.type".to_owned()));
        let mode = chosen(&two, allow("never", &["now"]));
        assert_eq!(mode, Err("body.tool_choice.mode".to_owned()));
    }
}
