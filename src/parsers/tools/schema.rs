//! The tools of a request: their names, and the types of their parameters.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

/// Most references that are followed from one schema to the next.
const MAX_REFERENCES: usize = 16;
/// Most schemas that are examined for a parameter, because a few schemas with references can form
/// an endless tree.
const MAX_SCHEMAS: usize = 1024;

/// The functions of a request. A clone is cheap, so every choice of a request can have one.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    functions: Arc<IndexMap<String, Function>>,
    is_limited: bool,
}

#[derive(Debug)]
struct Function {
    /// The schema of its parameters, or null.
    parameters: Value,
    /// Whether every call must match the schema.
    is_strict: bool,
}

impl Tools {
    /// Reads the `tools` of a request, in the form of chat completions
    /// (`{"type": "function", "function": {"name": …}}`) or of responses
    /// (`{"type": "function", "name": …}`). Tools that are not functions are left out.
    pub fn from_request(tools: &[Value]) -> Self {
        let functions = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let parameters = function.get("parameters").cloned().unwrap_or(Value::Null);
            let is_strict = function.get("strict").and_then(Value::as_bool).unwrap_or(false);
            Some((name, Function { parameters, is_strict }))
        });
        Self { functions: Arc::new(functions.collect()), is_limited: false }
    }

    /// Returns the same tools, without permission to call others.
    #[must_use]
    pub fn limited(self) -> Self {
        Self { is_limited: true, ..self }
    }

    /// Returns whether other tools must not be called.
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Returns the names, in the order of the request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// Returns the schema of a tool's parameters, or null if it has no schema. `None` if there is
    /// no tool of this name.
    pub fn parameters(&self, name: &str) -> Option<&Value> {
        self.functions.get(name).map(|function| &function.parameters)
    }

    /// Returns whether every call of a tool must match its schema (`strict: true`).
    pub fn is_strict(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|function| function.is_strict)
    }

    /// Returns whether any tool is strict.
    pub fn has_strict(&self) -> bool {
        self.functions.values().any(|function| function.is_strict)
    }

    /// Returns the types that a parameter may have. `None` if the tool does not say.
    pub(super) fn types(&self, tool: &str, parameter: &str) -> Option<Types> {
        let root = self.parameters(tool)?;
        let schema = root.get("properties")?.get(parameter)?;
        Types::of(schema, root)
    }
}

/// Returns the schema that `schema` refers to, or itself.
pub(super) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = |schema: &'a Value| {
        let pointer = schema.get("$ref").and_then(Value::as_str)?;
        root.pointer(pointer.strip_prefix('#')?)
    };
    let references = std::iter::successors(Some(schema), |&schema| target(schema));
    references.take(MAX_REFERENCES).last().unwrap_or(schema)
}

/// A set of JSON types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) null: bool,
    pub(super) boolean: bool,
    pub(super) number: bool,
    pub(super) string: bool,
    /// An object or an array.
    pub(super) composite: bool,
}

impl Types {
    /// Text, whatever its form.
    pub(super) const STRING: Self =
        Self { null: false, boolean: false, number: false, string: true, composite: false };
    /// Any JSON, or else text.
    pub(super) const JSON: Self =
        Self { null: false, boolean: false, number: false, string: true, composite: true };
    /// Any type, whatever the form of the text.
    pub(super) const ANY: Self =
        Self { null: true, boolean: true, number: true, string: true, composite: true };

    /// Returns the type of this name, as for example `array[string]`. That is text if the name is
    /// not known.
    pub(super) fn named(name: &str) -> Self {
        let mut types = Self::default();
        types.add_name(name.split('[').next().unwrap_or_default().trim());
        if types == Self::default() { Self::STRING } else { types }
    }

    /// Returns the types that a value of `schema` may have. `None` if the schema does not say.
    pub(super) fn of(schema: &Value, root: &Value) -> Option<Self> {
        let mut types = Self::default();
        let mut schemas_left = MAX_SCHEMAS;
        types.collect(schema, root, MAX_REFERENCES, &mut schemas_left);
        (types != Self::default()).then_some(types)
    }

    fn collect(
        &mut self,
        schema: &Value,
        root: &Value,
        references_left: usize,
        schemas_left: &mut usize,
    ) {
        let Some(references_left) = references_left.checked_sub(1) else { return };
        let Some(rest) = schemas_left.checked_sub(1) else { return };
        *schemas_left = rest;
        match schema.get("type") {
            Some(Value::String(name)) => self.add_name(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| self.add_name(name));
            }
            _ => {}
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            self.null = true;
        }
        if schema.get("type").is_none() {
            schema.get("const").into_iter().for_each(|value| self.add_value(value));
            let values = schema.get("enum").and_then(Value::as_array);
            values.into_iter().flatten().for_each(|value| self.add_value(value));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let schemas = schema.get(key).and_then(Value::as_array);
            for schema in schemas.into_iter().flatten() {
                self.collect(schema, root, references_left, schemas_left);
            }
        }
        let pointer = schema.get("$ref").and_then(Value::as_str);
        let target = pointer.and_then(|pointer| root.pointer(pointer.strip_prefix('#')?));
        if let Some(target) = target {
            self.collect(target, root, references_left, schemas_left);
        }
    }

    /// Adds a type by its name. Clients also write the names of types in other languages.
    fn add_name(&mut self, name: &str) {
        match name.to_ascii_lowercase().as_str() {
            "null" | "none" => self.null = true,
            "string" | "str" | "text" | "varchar" | "char" | "enum" => self.string = true,
            "boolean" | "bool" | "binary" => self.boolean = true,
            "object" | "array" | "dict" | "list" | "tuple" => self.composite = true,
            name if name.starts_with("dict") || name.starts_with("list") => self.composite = true,
            name if ["int", "uint", "long", "short", "unsigned", "num", "float", "double"]
                .iter()
                .any(|prefix| name.starts_with(prefix)) =>
            {
                self.number = true;
            }
            _ => {}
        }
    }

    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Null => self.null = true,
            Value::Bool(_) => self.boolean = true,
            Value::Number(_) => self.number = true,
            Value::String(_) => self.string = true,
            Value::Array(_) | Value::Object(_) => self.composite = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_found_everywhere_in_a_schema() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "plain": {"type": "string"},
                "either": {"type": ["integer", "null"]},
                "any": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/Point"}]},
                "words": {"enum": ["c", "f"]},
                "mixed": {"enum": ["c", 3]},
                "foreign": {"type": "dict[str, int]"},
                "long": {"type": "Int64"},
                "open": {"description": "anything"},
                "loop": {"$ref": "#/$defs/Loop"},
            },
            "$defs": {"Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}},
        });
        let tools = Tools::from_request(&[
            json!({"type": "function", "function": {"name": "f", "parameters": parameters}}),
            json!({"type": "function", "name": "g"}),
            json!({"type": "web_search"}),
        ]);
        assert_eq!(tools.names().collect::<Vec<_>>(), ["f", "g"]);
        let types = |name| tools.types("f", name);
        let none = Types::default();
        assert_eq!(types("plain"), Some(Types::STRING));
        assert_eq!(types("either"), Some(Types { number: true, null: true, ..none }));
        assert_eq!(types("any"), Some(Types { boolean: true, composite: true, ..none }));
        assert_eq!(types("words"), Some(Types::STRING));
        assert_eq!(types("mixed"), Some(Types { number: true, string: true, ..none }));
        assert_eq!(types("foreign"), Some(Types { composite: true, ..none }));
        assert_eq!(types("long"), Some(Types { number: true, ..none }));
        assert_eq!(types("open"), None);
        assert_eq!(types("loop"), None);
        assert_eq!(types("missing"), None);
        assert_eq!(tools.types("g", "a"), None);
        assert_eq!(tools.types("h", "a"), None);
    }

    /// The limit on examined schemas ends this: each of these refers to fifty others, sixteen
    /// times.
    #[test]
    fn references_that_branch_end() {
        let branches = vec![json!({"$ref": "#/properties/a"}); 50];
        let parameters = json!({"properties": {"a": {"anyOf": branches, "type": "integer"}}});
        let tools = Tools::from_request(&[json!({"name": "f", "parameters": parameters})]);
        assert_eq!(tools.types("f", "a"), Some(Types { number: true, ..Types::default() }));
    }
}
