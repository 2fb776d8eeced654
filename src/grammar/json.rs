//! JSON schemas: what is made of them before they are compiled.

use playhouse_actors::{logic::structured_output::StructuredOutput, ports::GrammarError};
use serde_json::{Map, Value, json};

use super::size;

/// Deepest nesting of a schema, as in vLLM.
const MAX_NESTING: usize = 64;
/// Between two tokens of JSON: a space, or a new line and its indentation. Bounded, as a model that
/// likes white space would else write nothing but that for ever.
const WHITE_SPACE: &str = r" |\n {0,12}|\n\t{1,6}";
/// What may be put in the place of references, all together.
const MAX_INLINED_BYTES: usize = 1 << 20;
/// Where subschemas stand by name.
pub(super) const MAPS_OF_SCHEMAS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Where a subschema stands, or a list of them.
pub(super) const SCHEMAS: [&str; 9] = [
    "additionalProperties",
    "additionalItems",
    "items",
    "prefixItems",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "contains",
];

/// JSON text, held to the limits.
///
/// # Errors
/// [`GrammarError::Invalid`] when it is no JSON, [`GrammarError::TooLarge`] when it is too deep.
pub(super) fn parse(what: &str, text: &str) -> Result<Value, GrammarError> {
    let invalid = |error| GrammarError::Invalid(format!("{what} is no valid JSON: {error}"));
    let value: Value = serde_json::from_str(text).map_err(invalid)?;
    match nesting(&value) {
        depth if depth > MAX_NESTING => Err(GrammarError::TooLarge(format!(
            "{what} is nested {depth} levels deep; at most {MAX_NESTING} are allowed"
        ))),
        _ => Ok(value),
    }
}

/// The schema in the form that llguidance compiles, with how to write white space.
///
/// # Errors
/// [`GrammarError::Invalid`] when it is no schema at all, [`GrammarError::TooLarge`] when it would
/// take too long.
pub(super) fn prepared(schema: Value, output: &StructuredOutput) -> Result<Value, GrammarError> {
    let mut schema = match schema {
        Value::Object(schema) => Value::Object(schema),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err(refused("the schema `false` allows no value".to_owned())),
        other => {
            let got = other.to_string().chars().take(40).collect::<String>();
            return Err(refused(format!("a JSON schema must be an object, got {got}")));
        }
    };
    size::check_schema(&schema)?;
    let root = schema.clone();
    let mut inlined_bytes = 0;
    for_each_schema(&mut schema, &mut |subschema| {
        inline_one_of(subschema, &root, &mut inlined_bytes);
        leave_out_leap_seconds(subschema);
        if output.disable_additional_properties {
            close(subschema);
        }
    });
    let options = match output.disable_any_whitespace {
        true => json!({"whitespace_flexible": false}),
        false => json!({"whitespace_flexible": true, "whitespace_pattern": WHITE_SPACE}),
    };
    // What stands in the place of references counts as well.
    size::check_schema(&schema)?;
    // Also replaces what the client may have put there, as that could undo the bound.
    schema["x-guidance"] = options;
    Ok(schema)
}

/// An object allows no properties that the schema does not name.
fn close(schema: &mut Map<String, Value>) {
    let names_some = |key: &str| schema.get(key).is_some_and(Value::is_object);
    if !schema.contains_key("additionalProperties")
        && (names_some("properties") || names_some("patternProperties"))
    {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// The library would have a 60th second in every minute, which few readers take.
fn leave_out_leap_seconds(schema: &mut Map<String, Value>) {
    let format = schema.get("format").and_then(Value::as_str);
    if !matches!(format, Some("time" | "date-time")) {
        return;
    }
    let all_of = schema.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all_of) = all_of {
        all_of.push(json!({"pattern": "^[^:]*:[^:]*:[0-5]"}));
    }
}

/// The alternatives of a `oneOf` must exclude each other to be compiled. Those that are references
/// are only seen to do so with what they refer to in their place.
fn inline_one_of(schema: &mut Map<String, Value>, root: &Value, inlined_bytes: &mut usize) {
    let Some(Value::Array(options)) = schema.get_mut("oneOf") else { return };
    for option in options {
        let Some(place) = option.get("$ref").and_then(Value::as_str) else { continue };
        let is_alone = option.as_object().is_some_and(|option| option.len() == 1);
        let target = place.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(target) = target.filter(|target| is_alone && target.get("$id").is_none()) else {
            continue;
        };
        *inlined_bytes += target.to_string().len();
        if *inlined_bytes > MAX_INLINED_BYTES {
            return;
        }
        *option = target.clone();
    }
}

/// Calls `change` with every schema that is an object, those within others first.
fn for_each_schema(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(schema) = schema else { return };
    for (key, value) in &mut *schema {
        let key = key.as_str();
        match value {
            Value::Object(named) if MAPS_OF_SCHEMAS.contains(&key) => {
                named.values_mut().for_each(|schema| for_each_schema(schema, change));
            }
            Value::Array(list) if SCHEMAS.contains(&key) => {
                list.iter_mut().for_each(|schema| for_each_schema(schema, change));
            }
            Value::Object(_) if SCHEMAS.contains(&key) => for_each_schema(value, change),
            _ => {}
        }
    }
    change(schema);
}

fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(nesting).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn refused(message: String) -> GrammarError {
    GrammarError::Invalid(message)
}
