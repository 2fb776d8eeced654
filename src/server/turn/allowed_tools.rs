//! `tool_choice` of `allowed_tools`: the model may call only some of the tools.

use serde_json::{Map, Value};

use crate::{server::http::error::ApiError, turn::ToolChoice};

/// How a protocol writes `allowed_tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum AllowedForm {
    /// Chat completions: `mode` and `tools` are in `allowed_tools`, a tool's name is in `function`.
    Nested,
    /// Responses: `mode`, `tools` and a tool's name are at the top level.
    Flat,
}

impl AllowedForm {
    fn place(self) -> &'static str {
        match self {
            Self::Nested => "body.tool_choice.allowed_tools",
            Self::Flat => "body.tool_choice",
        }
    }

    fn body(self, choice: &Map<String, Value>) -> Result<&Map<String, Value>, ApiError> {
        match self {
            Self::Flat => Ok(choice),
            Self::Nested => match choice.get("allowed_tools") {
                Some(Value::Object(body)) => Ok(body),
                Some(_) => Err(refused(self.place(), "Input should be a valid dictionary")),
                None => Err(refused(self.place(), "Field required")),
            },
        }
    }

    /// Returns the name of the tool at `index`.
    fn name(self, index: usize, tool: &Value) -> Result<&str, ApiError> {
        let place = format!("{}.tools.{index}", self.place());
        let Value::Object(fields) = tool else {
            return Err(refused(&place, "Input should be a valid dictionary"));
        };
        match fields.get("type").map(Value::as_str) {
            Some(Some("function")) => {}
            Some(Some("custom")) if self == Self::Flat => {}
            None => return Err(refused(&format!("{place}.type"), "Field required")),
            Some(_) => return Err(refused(&format!("{place}.type"), "Input should be 'function'")),
        }
        let (name, key) = match self {
            Self::Flat => (&tool["name"], "name"),
            Self::Nested => (&tool["function"]["name"], "function.name"),
        };
        let wanted = "Input should be a valid string";
        name.as_str().ok_or_else(|| refused(&format!("{place}.{key}"), wanted))
    }
}

/// Reads a `tool_choice` of this type. Removes all other tools from `tools`.
///
/// # Errors
/// If it is malformed, allows no tool, or names a tool that the request does not define.
pub(in crate::server) fn allow(
    choice: &Map<String, Value>,
    form: AllowedForm,
    tools: &mut Option<Vec<Value>>,
) -> Result<ToolChoice, ApiError> {
    let body = form.body(choice)?;
    let place = |key: &str| format!("{}.{key}", form.place());
    let choice = match body.get("mode").map(Value::as_str) {
        Some(Some("auto")) => ToolChoice::Allowed,
        Some(Some("required")) => ToolChoice::Required,
        Some(_) => return Err(refused(&place("mode"), "Input should be 'auto' or 'required'")),
        None => return Err(refused(&place("mode"), "Field required")),
    };
    let allowed = match body.get("tools") {
        Some(Value::Array(allowed)) => allowed,
        Some(_) => return Err(refused(&place("tools"), "Input should be a valid list")),
        None => return Err(refused(&place("tools"), "Field required")),
    };
    let names = allowed.iter().enumerate().map(|(index, tool)| form.name(index, tool));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    if names.is_empty() {
        return Err(ApiError::invalid("tool_choice", "tool_choice must allow at least one tool"));
    }
    let mut on_offer = tools.take().unwrap_or_default();
    let name_of = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
    let offered: Vec<String> = on_offer.iter().filter_map(name_of).collect();
    let is_unknown = |name: &&str| !offered.iter().any(|offered| offered == name);
    let unknown: Vec<&str> = names.iter().copied().filter(is_unknown).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join("', '");
        let message = format!("tool_choice allows '{unknown}', not among the `tools` on offer");
        return Err(ApiError::invalid("tool_choice", message));
    }
    on_offer.retain(|tool| name_of(tool).is_some_and(|name| names.contains(&name.as_str())));
    *tools = Some(on_offer);
    Ok(choice)
}

fn refused(place: &str, message: &str) -> ApiError {
    ApiError::validation(place, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the choice and the remaining names, or the field and the message of the error.
    fn read(choice: &Value, form: AllowedForm) -> Result<(ToolChoice, Vec<Value>), ApiError> {
        let tools = ["now", "later", "never"].map(|name| json!({"function": {"name": name}}));
        let mut tools = Some(tools.to_vec());
        let choice = allow(choice.as_object().unwrap(), form, &mut tools)?;
        let names = tools.unwrap().into_iter().map(|tool| tool["function"]["name"].clone());
        Ok((choice, names.collect()))
    }

    fn nested(mode: &str, names: &[&str]) -> Value {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
        let tools: Vec<Value> = names.iter().map(tool).collect();
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    }

    fn flat(mode: &str, names: &[&str]) -> Value {
        let tool = |name: &&str| json!({"type": "function", "name": name});
        let tools: Vec<Value> = names.iter().map(tool).collect();
        json!({"type": "allowed_tools", "mode": mode, "tools": tools})
    }

    #[test]
    fn either_form_leaves_the_tools_that_it_allows() {
        for (form, write) in
            [(AllowedForm::Nested, nested as fn(&str, &[&str]) -> Value), (AllowedForm::Flat, flat)]
        {
            let read = |mode: &str, names: &[&str]| read(&write(mode, names), form).unwrap();
            let two = vec![json!("now"), json!("never")];
            assert_eq!(read("auto", &["never", "now"]), (ToolChoice::Allowed, two));
            let one = vec![json!("later")];
            assert_eq!(read("required", &["later", "later"]), (ToolChoice::Required, one));
        }
    }

    #[test]
    fn unknown_tools_are_all_named() {
        for (form, choice) in [
            (AllowedForm::Nested, nested("auto", &["now", "once", "twice"])),
            (AllowedForm::Flat, flat("required", &["now", "once", "twice"])),
        ] {
            let error = read(&choice, form).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some("tool_choice")));
            assert!(error.message.contains("'once', 'twice'"), "{}", error.message);
            assert!(!error.message.contains("'now'"), "{}", error.message);
        }
    }

    #[test]
    fn a_malformed_choice_is_rejected_by_its_place() {
        let place = |choice: Value, form| read(&choice, form).unwrap_err().param.unwrap();
        let flat_place = |choice: Value| place(choice, AllowedForm::Flat);
        assert_eq!(flat_place(flat("maybe", &["now"])), "body.tool_choice.mode");
        assert_eq!(flat_place(json!({"tools": []})), "body.tool_choice.mode");
        assert_eq!(flat_place(json!({"mode": "auto"})), "body.tool_choice.tools");
        assert_eq!(flat_place(flat("auto", &[])), "tool_choice");
        let with = |tool: Value| json!({"mode": "auto", "tools": [tool]});
        assert_eq!(flat_place(with(json!(1))), "body.tool_choice.tools.0");
        assert_eq!(flat_place(with(json!({"name": "now"}))), "body.tool_choice.tools.0.type");
        let search = json!({"type": "web_search"});
        assert_eq!(flat_place(with(search)), "body.tool_choice.tools.0.type");
        let unnamed = json!({"type": "function", "function": {"name": "now"}});
        assert_eq!(flat_place(with(unnamed)), "body.tool_choice.tools.0.name");
        let nested_place = |choice: Value| place(choice, AllowedForm::Nested);
        assert_eq!(nested_place(flat("auto", &["now"])), "body.tool_choice.allowed_tools");
        assert_eq!(nested_place(nested("", &["now"])), "body.tool_choice.allowed_tools.mode");
        let flat_tool = json!({"allowed_tools": with(json!({"type": "function", "name": "now"}))});
        let function = "body.tool_choice.allowed_tools.tools.0.function.name";
        assert_eq!(nested_place(flat_tool), function);
    }
}
