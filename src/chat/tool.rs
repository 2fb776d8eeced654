//! The functions that the model may call.

use serde_json::{Value, json};

use super::ChatError;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Tool {
    /// The function's name.
    pub name: String,
    /// The text that tells the model when to call the function.
    pub description: String,
    /// The JSON schema of the arguments: an object, or null for a function without arguments.
    pub parameters: Value,
    /// Whether calls must match the schema. Only some formats of calls can be restricted this way.
    /// A call that must be made always matches.
    pub strict: bool,
}

impl Tool {
    /// Returns a function with arguments of this JSON schema.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: impl Into<Value>,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        Self { name, description, parameters: parameters.into(), strict: false }
    }

    /// Returns the tool in the form of chat completions, which chat templates read.
    ///
    /// # Errors
    /// If its parameters are no schema of an object.
    pub(super) fn render(self) -> Result<Value, ChatError> {
        let Self { name, description, parameters, strict } = self;
        if !matches!(parameters, Value::Object(_) | Value::Null) {
            return Err(ChatError::ToolParameters { name });
        }
        let mut function = json!({"name": name, "description": description});
        if !parameters.is_null() {
            function["parameters"] = parameters;
        }
        if strict {
            function["strict"] = true.into();
        }
        Ok(json!({"type": "function", "function": function}))
    }
}
