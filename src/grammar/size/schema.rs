//! The size of a JSON schema.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    super::json::{self, MAPS_OF_SCHEMAS, SCHEMAS},
    MAX_OPTIONAL_PROPERTIES,
};

/// Longest chain of references between schemas that one value has to match.
const MAX_REFERENCES: usize = 64;

/// The size of schemas, summed over all of them unless a field says otherwise.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaSize {
    /// Optional properties of the object that has most of them.
    pub(super) optional: usize,
    /// Alternatives of the longest list.
    pub(super) alternatives: usize,
    /// Properties, and alternatives of all lists.
    pub(super) entries: usize,
    pub(super) enum_values: usize,
    pub(super) pattern_bytes: usize,
    pub(super) pattern_properties: usize,
    /// Patterns of the object that has most of them, where several schemas are merged.
    pub(super) merged_patterns: usize,
    /// Whether a `multipleOf` exceeds the library's range.
    pub(super) has_large_multiple: bool,
}

impl SchemaSize {
    /// Counts each schema within `root` once. References lead to schemas elsewhere, which are
    /// counted there.
    pub(super) fn add(&mut self, root: &Value) {
        let mut merging = Merging { root, referred: BTreeMap::new() };
        let (mut open, mut seen) = (vec![root], BTreeSet::new());
        while let Some(schema) = open.pop() {
            let Value::Object(schema) = schema else { continue };
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            self.add_alone(schema);
            let merged = merging.merged(schema, 0);
            self.optional = self.optional.max(merged.optional);
            self.merged_patterns = self.merged_patterns.max(merged.patterns);
            self.has_large_multiple |= merged.multiple.is_some_and(|of| !of.is_countable());
            for (key, value) in schema {
                match value {
                    Value::Object(named) if MAPS_OF_SCHEMAS.contains(&key.as_str()) => {
                        open.extend(named.values());
                    }
                    Value::Array(list) if SCHEMAS.contains(&key.as_str()) => open.extend(list),
                    Value::String(reference) if key == "$ref" => {
                        open.extend(json::referred(root, reference));
                    }
                    value if SCHEMAS.contains(&key.as_str()) => open.push(value),
                    _ => {}
                }
            }
        }
    }

    /// Adds a schema without its subschemas.
    fn add_alone(&mut self, schema: &Map<String, Value>) {
        let count = |key: &str| match schema.get(key) {
            Some(Value::Object(named)) => named.len(),
            Some(Value::Array(list)) => list.len(),
            _ => 0,
        };
        self.pattern_properties += count("patternProperties");
        self.entries += count("properties") + count("patternProperties") + num_unlisted(schema);
        for list in ["anyOf", "oneOf", "allOf", "prefixItems"].map(count) {
            self.alternatives = self.alternatives.max(list);
            self.entries += list;
        }
        self.enum_values += count("enum");
        let pattern = schema.get("pattern").and_then(Value::as_str);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let patterns = patterns.into_iter().flat_map(Map::keys).map(String::as_str);
        self.pattern_bytes += patterns.chain(pattern).map(str::len).sum::<usize>();
    }
}

/// Returns the names that an object must have.
fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the number of required names that have no schema or are repeated.
fn num_unlisted(schema: &Map<String, Value>) -> usize {
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_listed = |name: &&str| properties.is_some_and(|listed| listed.contains_key(*name));
    let names: BTreeSet<&str> = required(schema).collect();
    required(schema).count() - names.into_iter().filter(is_listed).count()
}

/// The merged sizes of all schemas that one value has to match.
#[derive(Debug, Clone, Copy, Default)]
struct Merged {
    optional: usize,
    patterns: usize,
    multiple: Option<Multiple>,
}

impl Merged {
    /// Returns the sizes of a schema's own keywords.
    fn alone(schema: &Map<String, Value>) -> Self {
        let required: BTreeSet<&str> = required(schema).collect();
        let named = |key: &str| schema.get(key).and_then(Value::as_object);
        let names = named("properties").into_iter().flat_map(Map::keys);
        Self {
            optional: names.filter(|name| !required.contains(name.as_str())).count(),
            patterns: named("patternProperties").map_or(0, Map::len),
            multiple: schema.get("multipleOf").and_then(Multiple::read),
        }
    }

    /// Returns the sizes for a value that has to match both.
    fn and(self, other: Self) -> Self {
        Self {
            optional: self.optional.saturating_add(other.optional),
            patterns: self.patterns.saturating_add(other.patterns),
            multiple: match (self.multiple, other.multiple) {
                (Some(one), Some(other)) => Some(one.times(other)),
                (one, other) => one.or(other),
            },
        }
    }

    /// Returns the largest sizes for a value that has to match one of them.
    fn or(self, other: Self) -> Self {
        Self {
            optional: self.optional.max(other.optional),
            patterns: self.patterns.max(other.patterns),
            multiple: match (self.multiple, other.multiple) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// Merges schemas as the library does, references among them.
struct Merging<'a> {
    root: &'a Value,
    /// By reference. An entry is empty while its reference is followed, so a reference that leads
    /// back to itself adds nothing.
    referred: BTreeMap<&'a str, Merged>,
}

impl<'a> Merging<'a> {
    /// Returns the merged sizes of a schema that was reached through `num_references` references.
    fn merged(&mut self, schema: &'a Map<String, Value>, num_references: usize) -> Merged {
        let mut merged = Merged::alone(schema);
        for (key, value) in schema {
            let other = match (key.as_str(), value) {
                ("allOf", Value::Array(list)) => self.list(list, num_references, Merged::and),
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    self.list(list, num_references, Merged::or)
                }
                ("$ref", Value::String(reference)) => self.referred(reference, num_references),
                _ => continue,
            };
            merged = merged.and(other);
        }
        merged
    }

    fn list(
        &mut self,
        schemas: &'a [Value],
        num_references: usize,
        join: fn(Merged, Merged) -> Merged,
    ) -> Merged {
        let schemas = schemas.iter().filter_map(Value::as_object);
        schemas.fold(Merged::default(), |merged, schema| {
            join(merged, self.merged(schema, num_references))
        })
    }

    fn referred(&mut self, reference: &'a str, num_references: usize) -> Merged {
        if let Some(known) = self.referred.get(reference) {
            return *known;
        }
        let target = json::referred(self.root, reference).and_then(Value::as_object);
        let Some(target) = target else { return Merged::default() };
        if num_references >= MAX_REFERENCES {
            // Too many references, wherever they lead.
            return Merged { optional: MAX_OPTIONAL_PROPERTIES + 1, ..Merged::default() };
        }
        self.referred.insert(reference, Merged::default());
        let merged = self.merged(target, num_references + 1);
        self.referred.insert(reference, merged);
        merged
    }
}

/// A `multipleOf` as the library holds it: `coefficient * 10^-decimals`.
#[derive(Debug, Clone, Copy)]
struct Multiple {
    coefficient: u64,
    decimals: u32,
}

impl Multiple {
    fn read(value: &Value) -> Option<Self> {
        let (mut value, mut decimals) = (value.as_f64()?.abs(), 0);
        // Every float reaches an integer after few steps.
        while value.fract() != 0.0 {
            value *= 10.0;
            decimals += 1;
        }
        Some(Self { coefficient: value as u64, decimals })
    }

    /// Returns a lower bound of the numbers that are multiples of both.
    fn times(self, other: Self) -> Self {
        let decimals = self.decimals.max(other.decimals);
        let scaled =
            |of: Self| of.coefficient.saturating_mul(10_u64.saturating_pow(decimals - of.decimals));
        Self { coefficient: scaled(self).saturating_mul(scaled(other)), decimals }
    }

    fn max(self, other: Self) -> Self {
        let coefficient = self.coefficient.max(other.coefficient);
        Self { coefficient, decimals: self.decimals.max(other.decimals) }
    }

    /// Returns whether the remainder of a division digit by digit fits 32 bits.
    fn is_countable(self) -> bool {
        let digit = 9_u64.saturating_mul(10_u64.saturating_pow(self.decimals));
        self.coefficient.saturating_mul(10).saturating_add(digit) <= u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size(schema: &Value) -> SchemaSize {
        let mut size = SchemaSize::default();
        size.add(schema);
        size
    }

    #[test]
    fn a_schema_is_counted_wherever_it_holds_others() {
        let leaf = json!({"type": "integer"});
        let inner = json!({
            "properties": {"a": leaf, "b": leaf, "c": {"enum": [1, 2, 3]}}, "required": ["a"],
        });
        let schema = json!({
            "anyOf": [inner, {"items": {"prefixItems": [leaf, {"enum": ["x"]}]}}],
            "$defs": {"D": {"properties": {"d": {"not": inner}}}},
        });
        let expected = SchemaSize {
            optional: 2,
            alternatives: 2,
            entries: 2 + 3 + 2 + 1 + 3,
            enum_values: 7,
            ..SchemaSize::default()
        };
        assert_eq!(size(&schema), expected);
    }

    #[test]
    fn a_reference_counts_what_nothing_else_leads_to_and_that_once() {
        let hidden = json!({"patternProperties": {"^a": {}, "^b": {"enum": [1]}}});
        let reference = json!({"$ref": "#/hidden/a~1b"});
        let schema = json!({
            "hidden": {"a~1b": hidden},
            "properties": {"a": reference, "b": reference, "c": {"$ref": "#"}},
            "required": ["a", "b", "c", "c"],
        });
        let size = size(&schema);
        assert_eq!((size.pattern_properties, size.enum_values), (2, 1));
        assert_eq!(size.entries, 3 + 1 + 2, "the name that comes twice among them");
    }

    #[test]
    fn further_schemas_add_to_an_object_and_names_alone_do_not() {
        let of = |schema: Value| size(&schema).optional;
        let two = json!({"properties": {"a": {}, "b": {}}, "required": ["x", "y"]});
        assert_eq!(of(two.clone()), 2);
        assert_eq!(of(json!({"properties": {"c": {}}, "allOf": [two, {"allOf": [two]}]})), 5);
        assert_eq!(of(json!({"properties": {"c": {}}, "anyOf": [two, {"allOf": [two, two]}]})), 5);
        let referred = json!({"$ref": "#/$defs/two"});
        let schema = json!({
            "$defs": {"two": two, "back": {"allOf": [{"$ref": "#/$defs/back"}, referred]}},
            "allOf": [referred, {"oneOf": [referred, {}]}, {"$ref": "#/$defs/back"}],
            "$ref": "#/$defs/two",
        });
        assert_eq!(of(schema), 8);
    }

    #[test]
    fn chains_of_references_end() {
        let definitions = (0..MAX_REFERENCES + 2).map(|i| {
            let next = format!("#/$defs/{}", i + 1);
            (i.to_string(), json!({"allOf": [{"$ref": next}, {"$ref": next}]}))
        });
        let definitions: Map<String, Value> = definitions.collect();
        let schema = json!({"$ref": "#/$defs/0", "$defs": definitions});
        assert!(size(&schema).optional > MAX_OPTIONAL_PROPERTIES);
    }

    #[test]
    fn multiples_are_of_few_digits() {
        let is_large = |schema: Value| size(&schema).has_large_multiple;
        let multiple = |of: f64| json!({"multipleOf": of});
        for fine in [0.0, 1.0, 0.01, 1e-8, 12.5, 429_496_728.0, -3.0] {
            assert!(!is_large(multiple(fine)), "{fine}");
        }
        for large in [429_496_729.0, 1e-9, 4.000_000_01, 1e300, 5e-324] {
            assert!(is_large(multiple(large)), "{large}");
        }
        assert!(!is_large(json!({"multipleOf": 5, "allOf": [{"multipleOf": 0.01}]})));
        assert!(is_large(json!({"multipleOf": 30_000, "allOf": [{"multipleOf": 20_000}]})));
        assert!(is_large(json!({"items": {"multipleOf": 1e8, "anyOf": [{"multipleOf": 0.1}]}})));
        assert!(!is_large(json!({"anyOf": [{"multipleOf": 30_000}, {"multipleOf": 20_000}]})));
    }
}
