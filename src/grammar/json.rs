//! JSON schemas: their changes before they are compiled.

use std::borrow::Cow;

use playhouse_actors::{logic::request::structured_output::StructuredOutput, ports::GrammarError};
use serde_json::{Map, Value, json};

use super::{ascii_classes::with_ascii_classes, one_of, size::Size};

/// Deepest nesting of a schema, as in vLLM.
const MAX_NESTING: usize = 64;
/// The white space between two tokens of JSON where white space is free: a space, or a new line and
/// its indentation. It is bounded, because a model that prefers white space would otherwise write
/// it for ever.
const WHITE_SPACE: &str = r" |\n {0,12}|\n\t{1,6}";
/// The separator of members and elements of compact JSON, as a regular expression. It allows
/// `{"a": 1}`, which Python and chat templates write and models are trained on, and `{"a":1}`.
const ITEM_SEPARATOR: &str = ", ?";
/// As [`ITEM_SEPARATOR`], between a key and its value.
const KEY_SEPARATOR: &str = ": ?";
/// The keywords that hold subschemas by name.
pub(super) const MAPS_OF_SCHEMAS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// The keywords that hold a subschema, or a list of them.
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

/// Parses JSON text within the limits.
///
/// # Errors
/// [`GrammarError::Invalid`] when it is not JSON, [`GrammarError::TooLarge`] when it is too deep.
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

/// Returns the schema in the form that llguidance compiles, with its rules for white space. Adds it
/// to `size`. With `closes`, it is closed if its parts can be read alone.
///
/// # Errors
/// [`GrammarError::Invalid`] when it is no schema, [`GrammarError::TooLarge`] when it would take
/// too long.
pub(super) fn prepared(
    schema: Value,
    output: &StructuredOutput,
    closes: bool,
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
    let mut adds = false;
    for_each_schema(&mut schema, &mut |subschema| adds |= adds_properties(subschema));
    let closes = output.disable_additional_properties || closes && !adds;
    let (mut is_named_by_place, mut refers_to_patterns) = (false, false);
    for_each_schema(&mut schema, &mut |subschema| {
        leave_out_leap_seconds(subschema);
        if closes {
            close(subschema);
        }
        let reference = subschema.get("$ref").and_then(Value::as_str);
        is_named_by_place |= reference.is_some_and(|place| place.contains("/oneOf/"));
        refers_to_patterns |= reference.is_some_and(|place| place.contains("/patternProperties/"));
    });
    size.add_schema(&schema)?;
    // A reference may name a place in a `oneOf`, which must then stay as it is.
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
    // This also replaces the client's own value, which could undo the bound.
    schema["x-guidance"] = options;
    Ok(schema)
}

/// Returns whether parts of `schema` add properties to those of other parts. If each part forbade
/// all others, no object would match.
fn adds_properties(schema: &Map<String, Value>) -> bool {
    let has = |key: &&str| schema.contains_key(*key);
    let is_object = ["properties", "patternProperties"].iter().any(has);
    let adds = ["if", "not", "dependentSchemas", "unevaluatedProperties"];
    let beside = ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef"];
    let parts = schema.get("allOf").and_then(Value::as_array);
    adds.iter().any(has)
        || is_object && (beside.iter().any(has) || requires_more(schema))
        || parts.is_some_and(|parts| parts.len() > 1)
}

/// Returns whether objects need properties that `schema` does not name.
fn requires_more(schema: &Map<String, Value>) -> bool {
    let named = schema.get("properties").and_then(Value::as_object);
    let has = |name: &Value| {
        name.as_str().is_some_and(|name| named.is_some_and(|named| named.contains_key(name)))
    };
    let num_named = named.map_or(0, Map::len) as u64;
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| !names.iter().all(has))
        || schema.get("minProperties").and_then(Value::as_u64).is_some_and(|min| min > num_named)
}

/// Forbids properties that the schema does not name.
fn close(schema: &mut Map<String, Value>) {
    let names_some = |key: &str| schema.get(key).is_some_and(Value::is_object);
    if !schema.contains_key("additionalProperties")
        && (names_some("properties") || names_some("patternProperties"))
    {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// Gives patterns ASCII classes. Patterns for the names of properties are keys. They are unchanged
/// if a reference names one, or if two would become equal.
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

/// Excludes leap seconds. The library would allow a 60th second in every minute, which few readers
/// accept.
fn leave_out_leap_seconds(schema: &mut Map<String, Value>) {
    let format = schema.get("format").and_then(Value::as_str);
    if !matches!(format, Some("time" | "date-time")) {
        return;
    }
    require(schema, json!({"pattern": "^[^:]*:[^:]*:[0-5]"}));
}

/// Requires that a value matches `other` as well.
pub(super) fn require(schema: &mut Map<String, Value>, other: Value) {
    let all_of = schema.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all_of) = all_of {
        all_of.push(other);
    }
}

/// Returns the part of `root` that a reference leads to. Like the library, it uses each part of the
/// reference as a key without decoding it.
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

/// Calls `change` with each schema that is an object, inner ones first.
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
