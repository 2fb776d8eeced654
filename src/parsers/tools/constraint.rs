//! The JSON schema for the text of a forced call.

use serde_json::{Map, Value, json};

use super::schema::Tools;

/// A `tool_choice` that forces a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForcedCall {
    /// This function.
    Named(String),
    /// Any of the tools.
    Required,
}

/// The reason why there is no schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The named function is none of the tools.
    #[error("Tool '{name}' has not been passed in `tools`.")]
    UnknownTool {
        /// The name in `tool_choice`.
        name: String,
    },
    /// A call is required, but there is no tool.
    #[error("tool_choice is required, but `tools` holds no function")]
    NoTools,
    /// Two tools define the same name differently, and one schema has to hold both definitions.
    #[error("Tool definition '{name}' has multiple schemas, which is not supported.")]
    Definition {
        /// The name under `$defs`.
        name: String,
    },
}

impl ForcedCall {
    /// Reads the `tool_choice` of chat completions or of responses. `None` if it forces nothing.
    pub fn from_request(choice: &Value) -> Option<Self> {
        match choice {
            Value::String(word) if word == "required" => Some(Self::Required),
            Value::Object(choice) => {
                let name = choice.get("function").and_then(|function| function.get("name"));
                let name = name.or(choice.get("name"))?.as_str()?;
                Some(Self::Named(name.to_owned()))
            }
            _ => None,
        }
    }
}

/// Returns the schema for the text of a forced call.
///
/// For a named function it is the function's parameters, and
/// [`NamedCallParser`](super::NamedCallParser) reads the text. For a required call it is a list of
/// `{"name": …, "parameters": …}`, and the parser `json` reads it. The list has one element if
/// calls may not be parallel.
pub fn constraint_schema(
    tools: &Tools,
    choice: &ForcedCall,
    parallel_tool_calls: bool,
) -> Result<Value, ConstraintError> {
    match choice {
        ForcedCall::Named(name) => match tools.parameters(name) {
            Some(parameters) => Ok(or_no_parameters(parameters)),
            None => Err(ConstraintError::UnknownTool { name: name.clone() }),
        },
        ForcedCall::Required => required(tools, parallel_tool_calls),
    }
}

fn required(tools: &Tools, parallel_tool_calls: bool) -> Result<Value, ConstraintError> {
    let mut definitions = [("$defs", Map::new()), ("definitions", Map::new())];
    let mut calls = Vec::new();
    for name in tools.names() {
        let mut parameters = or_no_parameters(tools.parameters(name).unwrap_or(&Value::Null));
        // References start at the root, so their targets must be there.
        for (key, all) in &mut definitions {
            if let Value::Object(parameters) = &mut parameters
                && let Some(Value::Object(own)) = parameters.shift_remove(*key)
            {
                merge(all, own)?;
            }
        }
        calls.push(json!({
            "properties": {
                "name": {"type": "string", "enum": [name]},
                "parameters": parameters,
            },
            "required": ["name", "parameters"],
            "additionalProperties": false,
        }));
    }
    if calls.is_empty() {
        return Err(ConstraintError::NoTools);
    }
    let mut schema = json!({
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "anyOf": calls},
    });
    if !parallel_tool_calls {
        schema["maxItems"] = json!(1);
    }
    for (key, all) in definitions.into_iter().filter(|(_, all)| !all.is_empty()) {
        schema[key] = Value::Object(all);
    }
    Ok(schema)
}

/// Returns the parameters. A tool without parameters takes an empty object.
pub(super) fn or_no_parameters(parameters: &Value) -> Value {
    match parameters {
        Value::Null => json!({"type": "object", "properties": {}}),
        Value::Object(fields) if fields.is_empty() => json!({"type": "object", "properties": {}}),
        parameters => parameters.clone(),
    }
}

fn merge(all: &mut Map<String, Value>, own: Map<String, Value>) -> Result<(), ConstraintError> {
    for (name, schema) in own {
        match all.get(&name) {
            Some(other) if *other != schema => return Err(ConstraintError::Definition { name }),
            _ => all.insert(name, schema),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, parameters: &Value) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    }

    fn unit() -> Value {
        let properties = json!({"unit": {"enum": ["c", "f"]}});
        json!({"type": "object", "properties": properties, "required": ["unit"]})
    }

    #[test]
    fn a_choice_is_read_in_either_form() {
        let named = Some(ForcedCall::Named("now".to_owned()));
        let read = |choice| ForcedCall::from_request(&choice);
        assert_eq!(read(json!({"type": "function", "function": {"name": "now"}})), named);
        assert_eq!(read(json!({"type": "function", "name": "now"})), named);
        assert_eq!(read(json!("required")), Some(ForcedCall::Required));
        for free in [json!("auto"), json!("none"), json!(null), json!({}), json!(1)] {
            assert_eq!(read(free), None);
        }
    }

    #[test]
    fn a_named_call_is_its_parameters() {
        let tools = Tools::from_request(&[tool("weather", &unit()), json!({"name": "now"})]);
        let schema = |name: &str| constraint_schema(&tools, &ForcedCall::Named(name.into()), true);
        assert_eq!(schema("weather"), Ok(unit()));
        assert_eq!(schema("now"), Ok(json!({"type": "object", "properties": {}})));
        let error = schema("later").unwrap_err();
        assert_eq!(error.to_string(), "Tool 'later' has not been passed in `tools`.");
    }

    #[test]
    fn a_required_call_is_one_of_a_list() {
        let tools = Tools::from_request(&[tool("weather", &unit()), json!({"name": "now"})]);
        let expected = json!({
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "anyOf": [
                {
                    "properties": {
                        "name": {"type": "string", "enum": ["weather"]},
                        "parameters": unit(),
                    },
                    "required": ["name", "parameters"],
                    "additionalProperties": false,
                },
                {
                    "properties": {
                        "name": {"type": "string", "enum": ["now"]},
                        "parameters": {"type": "object", "properties": {}},
                    },
                    "required": ["name", "parameters"],
                    "additionalProperties": false,
                },
            ]},
        });
        let schema = constraint_schema(&tools, &ForcedCall::Required, true).unwrap();
        assert_eq!(schema, expected);
        let schema = constraint_schema(&tools, &ForcedCall::Required, false).unwrap();
        assert_eq!(schema["maxItems"], json!(1));
        let none = constraint_schema(&Tools::default(), &ForcedCall::Required, true);
        assert_eq!(none, Err(ConstraintError::NoTools));
    }

    #[test]
    fn definitions_move_to_the_root_and_must_agree() {
        let with = |point: Value| {
            json!({
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/Point"}},
                "$defs": {"Point": point},
            })
        };
        let number = || with(json!({"type": "number"}));
        let tools = Tools::from_request(&[tool("a", &number()), tool("b", &number())]);
        let schema = constraint_schema(&tools, &ForcedCall::Required, true).unwrap();
        assert_eq!(schema["$defs"], json!({"Point": {"type": "number"}}));
        let parameters = &schema["items"]["anyOf"][1]["properties"]["parameters"];
        assert_eq!(parameters.get("$defs"), None);
        assert_eq!(parameters["properties"]["at"], json!({"$ref": "#/$defs/Point"}));

        let other = with(json!({"type": "string"}));
        let tools = Tools::from_request(&[tool("a", &number()), tool("b", &other)]);
        let error = constraint_schema(&tools, &ForcedCall::Required, true).unwrap_err();
        assert_eq!(error, ConstraintError::Definition { name: "Point".to_owned() });
    }
}
