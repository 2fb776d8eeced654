//! Bounds the memory that the values of a JSON text take, from its brackets and commas alone. A
//! body of a few bytes a value becomes a hundred times its size.

use std::io;

use serde::Serialize;
use serde_json::Value;

/// Memory of a value in a list or an object, with its key and the allocation of a short string.
const VALUE_BYTES: usize = size_of::<Value>() + size_of::<String>() + 16;
/// Memory of a list or an object with content: capacity for four values, and an object's table.
const CONTAINER_BYTES: usize = 4 * VALUE_BYTES + 64;

/// The counts of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Structure {
    /// Commas: each stands for a value after the first of its list or object.
    separators: usize,
    /// Lists and objects.
    containers: usize,
}

/// Returns the most bytes that the values of `json` take beside their strings. Text that is no JSON
/// has a figure, too: the parser rejects it.
pub(in crate::server) fn value_bytes(json: &[u8]) -> usize {
    let Structure { separators, containers } = structure(json);
    let values = separators.saturating_mul(VALUE_BYTES);
    values.saturating_add(containers.saturating_mul(CONTAINER_BYTES))
}

/// Returns the bytes of `value` as JSON. They are about its size in memory.
pub(in crate::server) fn json_bytes(value: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    // Counting does not fail. A value that does not serialize weighs the bytes written until then.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn structure(json: &[u8]) -> Structure {
    let (mut found, mut in_string, mut escaped) = (Structure::default(), false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' if !in_string => found.separators += 1,
            b'{' | b'[' if !in_string => found.containers += 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Returns the memory of a parsed value: the sizes that its parts ask an allocator for.
    fn taken(value: &Value) -> usize {
        match value {
            Value::Array(items) => {
                let inner: usize = items.iter().map(taken).sum();
                items.capacity() * size_of::<Value>() + inner
            }
            Value::Object(fields) => {
                // indexmap: hash, key and value an entry, and a table of indices twice as large.
                let entry = size_of::<usize>() + size_of::<String>() + size_of::<Value>();
                let capacity = fields.len().next_power_of_two().max(4);
                let keys: usize = fields.keys().map(String::len).sum();
                let inner: usize = fields.values().map(taken).sum();
                capacity * (entry + 2 * size_of::<usize>()) + keys + inner
            }
            Value::String(text) => text.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn no_text_becomes_more_than_is_leased_for_it() {
        let many = |piece: &str| format!("[{}1]", format!("{piece},").repeat(1_000));
        for json in [
            many("0"),
            many("[]"),
            many("{}"),
            many("[1]"),
            many(r#"{"":0}"#),
            many(r#"{"a":0,"b":{}}"#),
            many(r#""""#),
            many(r#""text with [ and { and , in it""#),
            r#"{"messages": [{"role": "user", "content": "hi"}]}"#.to_owned(),
            "[".repeat(60) + &"]".repeat(60),
        ] {
            let value: Value = serde_json::from_str(&json).unwrap();
            let leased = value_bytes(json.as_bytes()) + json.len();
            let taken = taken(&value);
            assert!(taken <= leased, "{taken} of {leased}: {}", &json[..json.len().min(60)]);
        }
    }

    #[test]
    fn text_is_not_structure() {
        assert_eq!(value_bytes(br#""[[[,,,{{{\",""#), 0);
        assert_eq!(structure(br#"{"a": [1, 2]}"#), Structure { separators: 1, containers: 2 });
    }
}
