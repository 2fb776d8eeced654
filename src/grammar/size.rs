//! How much a grammar may hold. The library's own limits are on memory, and are looked at when much
//! of the time is spent already: it compares each new literal with all before, and the cost of an
//! object grows with the square of its optional properties. These are looked at first.

use std::collections::BTreeSet;

use playhouse_actors::ports::GrammarError;
use serde_json::{Map, Value};

use super::json::{MAPS_OF_SCHEMAS, SCHEMAS};

/// Most literals and regular expressions of a grammar that differ. Over 65,535 symbols it could not
/// be compiled anyway.
const MAX_LITERALS: usize = 10_000;
/// Most alternatives of one rule. The cost grows with their square, so several rules may have as many
/// as their squares add up to that of one.
const MAX_ALTERNATIVES: usize = 5_000;
/// Most alternatives of one `anyOf` and the like.
const MAX_SCHEMA_ALTERNATIVES: usize = 2_000;
/// Most properties of one object that may be left out.
const MAX_OPTIONAL_PROPERTIES: usize = 1_000;
/// Most properties and alternatives of a schema, all together.
const MAX_ENTRIES: usize = 5_000;
/// Most values of all `enum`s of a schema.
const MAX_ENUM_VALUES: usize = 20_000;

/// Most bytes of regular expressions, all together: ten thousand stars in a row cost seconds.
const MAX_REGEX_BYTES: usize = 32 << 10;

/// Refuses a regular expression that would take too long.
///
/// # Errors
/// [`GrammarError::TooLarge`] names the limit.
pub(super) fn check_regex(pattern: &str) -> Result<(), GrammarError> {
    at_most("a regex", "bytes", pattern.len(), MAX_REGEX_BYTES)
}

/// Refuses a schema that would take too long.
///
/// # Errors
/// [`GrammarError::TooLarge`] names what there is too much of, and the limit.
pub(super) fn check_schema(schema: &Value) -> Result<(), GrammarError> {
    let mut size = SchemaSize::default();
    size.add(schema);
    at_most(
        "a schema",
        "optional properties in one object",
        size.optional,
        MAX_OPTIONAL_PROPERTIES,
    )?;
    at_most("a schema", "alternatives in one list", size.alternatives, MAX_SCHEMA_ALTERNATIVES)?;
    at_most("a schema", "properties and alternatives", size.entries, MAX_ENTRIES)?;
    at_most("a schema", "bytes of patterns", size.pattern_bytes, MAX_REGEX_BYTES)?;
    at_most("a schema", "enum values", size.enum_values, MAX_ENUM_VALUES)
}

/// Refuses a grammar in Lark's notation that would take too long.
///
/// # Errors
/// As [`check_schema`].
pub(super) fn check_lark(text: &str) -> Result<(), GrammarError> {
    let size = LarkSize::of(text);
    at_most("a grammar", "different literals", size.literals.len(), MAX_LITERALS)?;
    let regexes = size.literals.iter().filter(|(opening, _)| *opening == "/");
    let regex_bytes = regexes.map(|(_, regex)| regex.len()).sum();
    at_most("a grammar", "bytes of regular expressions", regex_bytes, MAX_REGEX_BYTES)?;
    let alternatives = size.squares.isqrt();
    at_most(
        "a grammar",
        "alternatives in one rule, or fewer in several",
        alternatives,
        MAX_ALTERNATIVES,
    )
}

fn at_most(holder: &str, what: &str, count: usize, most: usize) -> Result<(), GrammarError> {
    if count <= most {
        return Ok(());
    }
    Err(GrammarError::TooLarge(format!("{holder} may hold at most {most} {what}, not {count}")))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct SchemaSize {
    /// In the object that has most of them.
    optional: usize,
    /// In the list that has most of them.
    alternatives: usize,
    entries: usize,
    enum_values: usize,
    pattern_bytes: usize,
}

impl SchemaSize {
    fn add(&mut self, schema: &Value) {
        let Value::Object(schema) = schema else { return };
        let count = |key: &str| match schema.get(key) {
            Some(Value::Object(named)) => named.len(),
            Some(Value::Array(list)) => list.len(),
            _ => 0,
        };
        self.optional = self.optional.max(num_optional(schema));
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
        for (key, value) in schema {
            match value {
                Value::Object(named) if MAPS_OF_SCHEMAS.contains(&key.as_str()) => {
                    named.values().for_each(|schema| self.add(schema));
                }
                Value::Array(list) if SCHEMAS.contains(&key.as_str()) => {
                    list.iter().for_each(|schema| self.add(schema));
                }
                value if SCHEMAS.contains(&key.as_str()) => self.add(value),
                _ => {}
            }
        }
    }
}

/// The names that an object must have.
fn required(schema: &Map<String, Value>) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// How many of them have no schema.
fn num_unlisted(schema: &Map<String, Value>) -> usize {
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_listed = |name: &&str| properties.is_some_and(|listed| listed.contains_key(*name));
    required(schema).into_iter().filter(|name| !is_listed(name)).count()
}

/// Properties of an object that may be left out, those of the schemas that it also has to match
/// among them.
fn num_optional(schema: &Map<String, Value>) -> usize {
    let required = required(schema);
    let properties = schema.get("properties").and_then(Value::as_object);
    let names = properties.into_iter().flat_map(Map::keys);
    let own = names.filter(|name| !required.contains(name.as_str())).count();
    let others = schema.get("allOf").and_then(Value::as_array);
    let others = others.into_iter().flatten().filter_map(Value::as_object).map(num_optional);
    own + others.sum::<usize>()
}

/// What a grammar in Lark's notation holds.
#[derive(Default)]
struct LarkSize<'a> {
    /// Strings and regular expressions that differ.
    literals: BTreeSet<(&'a str, &'a str)>,
    /// Of the numbers of alternatives of all rules. Those of a terminal, whose name is in capitals,
    /// are one expression.
    squares: usize,
}

impl<'a> LarkSize<'a> {
    /// A line ends a string, closed or not.
    fn of(text: &'a str) -> Self {
        let (mut size, mut alternatives, mut is_terminal) = (Self::default(), 0_usize, false);
        for line in text.lines() {
            let name = rule_name(line);
            if let Some(name) = name {
                size.squares += alternatives * alternatives;
                alternatives = 0;
                is_terminal = name.starts_with(|c: char| c.is_ascii_uppercase());
            }
            let bars = size.read_line(line);
            if !is_terminal {
                alternatives += bars + usize::from(name.is_some());
            }
        }
        size.squares += alternatives * alternatives;
        size
    }

    /// Notes the literals of a line, and counts what parts its alternatives.
    fn read_line(&mut self, line: &'a str) -> usize {
        let (mut rest, mut bars) = (line, 0);
        while let Some(start) = rest.find(['"', '/', '#', '|']) {
            let (opening, body) = rest[start..].split_at(1);
            if opening == "|" {
                (rest, bars) = (body, bars + 1);
                continue;
            }
            if opening == "#" || (opening == "/" && body.starts_with('/')) {
                break;
            }
            let end = closing(body, opening.as_bytes()[0]);
            self.literals.insert((opening, &body[..end]));
            rest = body.get(end + 1..).unwrap_or_default();
        }
        bars
    }
}

/// The name of the rule that a line begins, as far as that is plain: what is not goes on with the
/// rule before it.
fn rule_name(line: &str) -> Option<&str> {
    let (head, _) = line.split_once(':')?;
    let name = head.trim_start_matches(['?', '!']).trim_end();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (!name.is_empty() && name.chars().all(is_plain)).then_some(name)
}

/// Where `quote` comes unescaped in `body`, or its end.
fn closing(body: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    let place = body.bytes().position(|byte| {
        let found = byte == quote && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        found
    });
    place.unwrap_or(body.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let mut size = SchemaSize::default();
        size.add(&schema);
        let expected = SchemaSize {
            optional: 2,
            alternatives: 2,
            entries: 2 + 3 + 2 + 1 + 3,
            enum_values: 7,
            pattern_bytes: 0,
        };
        assert_eq!(size, expected);
    }

    #[test]
    fn what_else_an_object_must_match_adds_to_it_and_names_alone_do_not() {
        let of = |schema: Value| num_optional(schema.as_object().unwrap());
        let two = json!({"properties": {"a": {}, "b": {}}, "required": ["x", "y"]});
        assert_eq!(of(two.clone()), 2);
        assert_eq!(of(json!({"properties": {"c": {}}, "allOf": [two, {"allOf": [two]}]})), 5);
    }

    #[test]
    fn literals_count_once_and_comments_not_at_all() {
        let text = "start: \"a\" | \"a\" b /x\\/y/ // \"c\"\nb: \"\\\"\" | \"d # e\" # /f/\n";
        let num_literals = |text| LarkSize::of(text).literals.len();
        assert_eq!(num_literals(text), 4);
        assert_eq!(num_literals("a: \"open\nb: /open"), 2);
        assert_eq!(num_literals(""), 0);
    }

    #[test]
    fn alternatives_count_by_rule_however_it_is_laid_out() {
        let squares = |text| LarkSize::of(text).squares;
        assert_eq!(squares("a: b | c | \"|\""), 9);
        assert_eq!(squares("a: b\n | c\n | d"), 9);
        assert_eq!(squares("a: b | c\nb: d\nC: \"x\" | \"y\" | \"z\""), 4 + 1);
    }
}
