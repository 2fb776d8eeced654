//! `oneOf`, which equals `anyOf` if no value matches two alternatives. The library detects that,
//! but does not follow references, and unions of objects are usually written with references.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
};

use serde_json::{Map, Value, json};

use super::json;

/// Most keys of an alternative that are tried as the key that distinguishes it from the others.
const MAX_KEYS: usize = 16;

/// An alternative's own keywords, or those of the schema that it refers to.
type Part<'a> = &'a Map<String, Value>;
/// A type that a value may have. If only one value of that type is allowed, its JSON too. For an
/// object, the JSON is that of the key that distinguishes it.
type Kind<'a> = (&'a str, Option<String>);

/// Turns a `oneOf` into an `anyOf` if its alternatives exclude each other. References stay.
pub(super) fn relax(schema: &mut Map<String, Value>, root: &Value) {
    let Some(Value::Array(options)) = schema.get("oneOf") else { return };
    if !exclude_each_other(options, root) {
        return;
    }
    let options = Value::Array(options.clone());
    // A discriminator repeats what was just verified. The library does not know it, and does not
    // follow references that lead back here where it meets an unknown keyword.
    schema.retain(|key, _| key != "discriminator");
    if schema.contains_key("anyOf") {
        schema.retain(|key, _| key != "oneOf");
        return json::require(schema, json!({ "anyOf": options }));
    }
    // Renamed in place, because the order of properties depends on the order of keys.
    let rename = |(key, value): (String, Value)| match key.as_str() {
        "oneOf" => ("anyOf".to_owned(), value),
        _ => (key, value),
    };
    *schema = std::mem::take(schema).into_iter().map(rename).collect();
}

fn exclude_each_other(options: &[Value], root: &Value) -> bool {
    let options: Vec<Vec<Part<'_>>> = options.iter().map(|option| parts(option, root)).collect();
    let keys = options.iter().map(|parts| tag_keys(parts)).find(|keys| !keys.is_empty());
    let keys = keys.unwrap_or_default().into_iter().map(Some);
    keys.chain([None]).any(|key| are_told_apart(&options, key))
}

fn parts<'a>(option: &'a Value, root: &'a Value) -> Vec<Part<'a>> {
    let reference = option.get("$ref").and_then(Value::as_str);
    let target = reference.and_then(|reference| json::referred(root, reference));
    [Some(option), target].into_iter().flatten().filter_map(Value::as_object).collect()
}

/// Returns whether no two options share a kind. `key` distinguishes objects.
fn are_told_apart(options: &[Vec<Part<'_>>], key: Option<&str>) -> bool {
    let mut seen: BTreeMap<&str, BTreeSet<Option<String>>> = BTreeMap::new();
    for parts in options {
        let Some(kinds) = kinds(parts, key) else { return false };
        let is_seen = |(name, value): &Kind<'_>| {
            let overlaps = |values: &BTreeSet<Option<String>>| {
                value.is_none() || values.contains(&None::<String>) || values.contains(value)
            };
            seen.get(*name).is_some_and(overlaps)
        };
        if kinds.iter().any(is_seen) {
            return false;
        }
        for (name, value) in kinds {
            seen.entry(name).or_default().insert(value);
        }
    }
    true
}

/// Returns the kinds that a value may have. `None` means any.
fn kinds<'a>(parts: &[Part<'a>], key: Option<&str>) -> Option<BTreeSet<Kind<'a>>> {
    let find = |keyword: &str| parts.iter().find_map(|part| part.get(keyword));
    let values = match (find("const"), find("enum")) {
        (Some(value), _) => Some(slice::from_ref(value)),
        (None, Some(Value::Array(values))) => Some(values.as_slice()),
        _ => None,
    };
    if let Some(values) = values {
        return Some(values.iter().map(|value| (type_of(value), literal(value))).collect());
    }
    let names = match find("type")? {
        Value::Array(names) => names.as_slice(),
        name => slice::from_ref(name),
    };
    let kind = |name: &'a Value| {
        Some(match name.as_str()? {
            "integer" => ("number", None),
            "object" => ("object", key.and_then(|key| tag(parts, key))),
            name => (name, None),
        })
    };
    names.iter().map(kind).collect()
}

/// Returns the keys that an object must have and that allow a single value.
fn tag_keys<'a>(parts: &[Part<'a>]) -> Vec<&'a str> {
    let keys = parts.iter().flat_map(|part| required(part));
    keys.filter(|key| only_value(parts, key).is_some()).take(MAX_KEYS).collect()
}

/// Returns the JSON of the one value that an object must have under `key`.
fn tag(parts: &[Part<'_>], key: &str) -> Option<String> {
    let is_required = parts.iter().any(|part| required(part).any(|name| name == key));
    only_value(parts, key).filter(|_| is_required)
}

fn only_value(parts: &[Part<'_>], key: &str) -> Option<String> {
    let schemas = parts.iter().filter_map(|part| part.get("properties")?.get(key));
    let mut values = schemas.filter_map(|schema| match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(value),
        (None, Some(Value::Array(values))) if values.len() == 1 => values.first(),
        _ => None,
    });
    values.next().and_then(literal)
}

fn required(part: Part<'_>) -> impl Iterator<Item = &str> {
    let names = part.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the JSON of a value. `None` if other JSON may stand for the same value.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.is_f64() => None,
        Value::Array(_) | Value::Object(_) => None,
        value => Some(value.to_string()),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_apart(root: Value) -> bool {
        let options = root["oneOf"].as_array().unwrap();
        exclude_each_other(options, &root)
    }

    fn tagged(value: Value, required: &[&str]) -> Value {
        let properties = json!({"n": {"const": 0}, "kind": value});
        json!({"type": "object", "properties": properties, "required": required})
    }

    #[test]
    fn exclusive_alternatives_are_recognized() {
        let kind = |value: Value| tagged(json!({ "const": value }), &["n", "kind"]);
        let either = |one: Value, other: Value| told_apart(json!({"oneOf": [one, other]}));
        assert!(either(kind(json!("a")), kind(json!("b"))));
        assert!(either(kind(json!(1)), tagged(json!({"enum": [2]}), &["kind"])));
        assert!(either(kind(json!("1")), kind(json!(1))));
        assert!(!either(kind(json!("a")), kind(json!("a"))));
        assert!(!either(kind(json!(1)), kind(json!(1.0))), "the same number");
        assert!(!either(kind(json!("a")), tagged(json!({"const": "b"}), &[])), "may be left out");
        assert!(!either(kind(json!("a")), tagged(json!({"enum": ["b", "c"]}), &["kind"])));
        assert!(!either(kind(json!("a")), json!({"required": ["kind"]})), "may be no object");
        assert!(either(kind(json!("a")), json!({"type": ["string", "null"]})));
        assert!(either(json!({"type": "string"}), json!({"type": "number"})));
        assert!(!either(json!({"type": "integer"}), json!({"type": ["number", "null"]})));
        assert!(either(json!({"const": "a"}), json!({"enum": ["b", null, 3]})));
        assert!(!either(json!({"const": "a"}), json!({"type": "string"})));
        assert!(!either(json!({"type": "string"}), json!({"const": "a"})));
        assert!(!either(json!(true), json!({"type": "string"})));
        let options: Vec<Value> = (0..2_000).map(|i| kind(i.into())).collect();
        assert!(told_apart(json!({ "oneOf": options })));
    }

    #[test]
    fn references_are_followed_once() {
        let kind = |value: &str| tagged(json!({ "const": value }), &["kind"]);
        let definitions = json!({"a": kind("a"), "b": kind("b"), "c": {"$ref": "#/$defs/a"}});
        let either = |one: Value, other: Value| {
            told_apart(json!({"oneOf": [one, other], "$defs": definitions}))
        };
        let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}"), "title": "x"});
        assert!(either(reference("a"), reference("b")));
        assert!(either(reference("a"), json!({"type": "null"})));
        assert!(!either(reference("a"), reference("a")));
        assert!(!either(reference("b"), reference("c")), "not where that leads");
        assert!(!either(reference("b"), reference("d")), "nowhere");
    }

    #[test]
    fn neighbouring_keywords_stay() {
        let options = json!([{"type": "string"}, {"type": "null"}]);
        let relaxed = |schema: Value| {
            let mut relaxed = schema.as_object().unwrap().clone();
            relax(&mut relaxed, &schema);
            Value::Object(relaxed).to_string()
        };
        let beside = json!({"a": 1, "discriminator": {}, "oneOf": options, "b": 2});
        let beside = relaxed(beside);
        assert_eq!(beside, json!({"a": 1, "anyOf": options, "b": 2}).to_string());
        let beside = relaxed(json!({"anyOf": [{}], "oneOf": options, "allOf": [true]}));
        let expected = json!({"anyOf": [{}], "allOf": [true, {"anyOf": options}]});
        assert_eq!(beside, expected.to_string());
        let overlapping = json!({"oneOf": [{"type": "string"}, {"minLength": 2}]});
        assert_eq!(relaxed(overlapping.clone()), overlapping.to_string());
    }
}
