//! JSON schemas: what is made of them before they are compiled.

use std::borrow::Cow;

use playhouse_actors::{logic::request::structured_output::StructuredOutput, ports::GrammarError};
use serde_json::{Map, Value, json};

use super::{ascii_classes::with_ascii_classes, one_of, size::Size};

/// Deepest nesting of a schema, as in vLLM.
const MAX_NESTING: usize = 64;
/// Between two tokens of JSON where any white space may stand: a space, or a new line and its
/// indentation. Bounded, as a model that likes white space would else write nothing but that for
/// ever.
const WHITE_SPACE: &str = r" |\n {0,12}|\n\t{1,6}";
/// What parts members and elements of compact JSON, as a regular expression: both `{"a": 1}`, which
/// Python and chat templates write and models are trained on, and `{"a":1}`.
const ITEM_SEPARATOR: &str = ", ?";
/// As [`ITEM_SEPARATOR`], between a key and its value.
const KEY_SEPARATOR: &str = ": ?";
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

/// The schema in the form that llguidance compiles, with how to write white space, added to `size`.
///
/// # Errors
/// [`GrammarError::Invalid`] when it is no schema at all, [`GrammarError::TooLarge`] when it would
/// take too long.
pub(super) fn prepared(
    schema: Value,
    output: &StructuredOutput,
    size: &mut Size,
) -> Result<Value, GrammarError> {
    let mut schema = match schema {
        Value::Object(schema) => Value::Object(schema),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err(refused("the schema `false` allows no value".to_owned())),
        other => {
            let got = other.to_string().chars().take(40).collect::<String>();
            return Err(refused(format!("a JSON schema must be an object, got {got}")));
        }
    };
    let (mut is_named_by_place, mut refers_to_patterns) = (false, false);
    for_each_schema(&mut schema, &mut |subschema| {
        leave_out_leap_seconds(subschema);
        if output.disable_additional_properties {
            close(subschema);
        }
        let reference = subschema.get("$ref").and_then(Value::as_str);
        is_named_by_place |= reference.is_some_and(|place| place.contains("/oneOf/"));
        refers_to_patterns |= reference.is_some_and(|place| place.contains("/patternProperties/"));
    });
    size.add_schema(&schema)?;
    // What is referred to by its place in a `oneOf` has to stay there.
    if !is_named_by_place {
        let root = schema.clone();
        for_each_schema(&mut schema, &mut |subschema| one_of::relax(subschema, &root));
    }
    for_each_schema(&mut schema, &mut |subschema| ascii_patterns(subschema, refers_to_patterns));
    let options = match output.disable_any_whitespace {
        Some(false) => json!({"whitespace_flexible": true, "whitespace_pattern": WHITE_SPACE}),
        None | Some(true) => json!({
            "whitespace_flexible": false,
            "item_separator": ITEM_SEPARATOR,
            "key_separator": KEY_SEPARATOR,
        }),
    };
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

/// Patterns have ASCII classes. Those for the names of properties, which are keys, stay as they are
/// where a reference names one or two would become one.
fn ascii_patterns(schema: &mut Map<String, Value>, keeps_keys: bool) {
    if let Some(Value::String(pattern)) = schema.get_mut("pattern") {
        *pattern = with_ascii_classes(pattern).into_owned();
    }
    let patterns = schema.get_mut("patternProperties").and_then(Value::as_object_mut);
    let Some(patterns) = patterns.filter(|_| !keeps_keys) else { return };
    let changes = |pattern: &String| matches!(with_ascii_classes(pattern), Cow::Owned(_));
    if !patterns.keys().any(changes) {
        return;
    }
    let ascii = |(pattern, schema): (&String, &Value)| {
        (with_ascii_classes(pattern).into_owned(), schema.clone())
    };
    let ascii: Map<String, Value> = patterns.iter().map(ascii).collect();
    if ascii.len() == patterns.len() {
        *patterns = ascii;
    }
}

/// The library would have a 60th second in every minute, which few readers take.
fn leave_out_leap_seconds(schema: &mut Map<String, Value>) {
    let format = schema.get("format").and_then(Value::as_str);
    if !matches!(format, Some("time" | "date-time")) {
        return;
    }
    require(schema, json!({"pattern": "^[^:]*:[^:]*:[0-5]"}));
}

/// A value has to match `other` as well.
pub(super) fn require(schema: &mut Map<String, Value>, other: Value) {
    let all_of = schema.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all_of) = all_of {
        all_of.push(other);
    }
}

/// What a reference within `root` leads to. The library takes each part of it for a key, as it
/// stands.
pub(super) fn referred<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match reference.strip_prefix("#/") {
        None => (reference == "#").then_some(root),
        Some("") => Some(root),
        Some(place) => place.split('/').try_fold(root, |value, part| match value {
            Value::Array(list) => list.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        }),
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
