//! Arguments that arrive as one tagged string each, written as a JSON object.

use super::{
    super::scan::{escape_json_char, python_to_json, quote_json},
    calls::Calls,
    schema::{Tools, Types},
};

/// Writes the arguments of one call, value by value. Strings are written as they arrive. A value
/// that may have another type must be complete first.
#[derive(Debug)]
pub(super) struct TaggedValues {
    tools: Tools,
    name: String,
    /// The types of a parameter that the tools do not describe.
    unknown: Types,
    /// Whether a line break after the opening tag and before the closing one is layout.
    framed: bool,
    num_values: usize,
    value: Option<Value>,
}

#[derive(Debug)]
struct Value {
    types: Types,
    /// Text that has arrived and is not yet written.
    text: String,
    has_text: bool,
    /// Whether it is JSON as it is written, or else text, whatever its types are.
    is_exact: bool,
}

impl TaggedValues {
    pub(super) fn new(tools: &Tools, name: &str, unknown: Types, framed: bool) -> Self {
        let (tools, name) = (tools.clone(), name.to_owned());
        Self { tools, name, unknown, framed, num_values: 0, value: None }
    }

    /// Begins the call.
    pub(super) fn start(&self, calls: &mut Calls) {
        calls.start(self.name.clone(), None);
        calls.arguments("{");
    }

    /// Begins the value of a parameter.
    pub(super) fn begin(&mut self, key: &str, calls: &mut Calls) {
        let types = self.tools.types(&self.name, key).unwrap_or(self.unknown);
        self.begin_as(key, types, calls);
    }

    /// Begins the value of a parameter. Without types in the tools, it has those of `kind`.
    pub(super) fn begin_or(&mut self, key: &str, kind: Option<Types>, calls: &mut Calls) {
        let types = self.tools.types(&self.name, key).or(kind).unwrap_or(self.unknown);
        self.begin_as(key, types, calls);
    }

    /// Begins the value of a parameter, whose types the text itself tells.
    pub(super) fn begin_as(&mut self, key: &str, types: Types, calls: &mut Calls) {
        calls.arguments(if self.num_values == 0 { "" } else { ", " });
        calls.arguments(&quote_json(key));
        calls.arguments(": ");
        self.num_values += 1;
        if types == Types::STRING {
            calls.arguments("\"");
        }
        let text = String::new();
        self.value = Some(Value { types, text, has_text: false, is_exact: false });
    }

    /// Begins the value of a parameter, which is JSON as it is written, or else text. If values
    /// `are_typed`, one whose schema has the type `string` alone is text.
    pub(super) fn begin_exact(&mut self, key: &str, are_typed: bool, calls: &mut Calls) {
        let properties = self.tools.parameters(&self.name).and_then(|it| it.get("properties"));
        let kind = properties.and_then(|it| it.get(key)?.get("type"));
        let is_text = are_typed && kind.is_some_and(|kind| kind == "string");
        self.begin_as(key, if is_text { Types::STRING } else { Types::JSON }, calls);
        self.value.iter_mut().for_each(|value| value.is_exact = true);
    }

    /// Takes more of the value.
    pub(super) fn push(&mut self, text: &str, calls: &mut Calls) {
        let Some(value) = &mut self.value else { return };
        for c in text.chars() {
            if self.framed && !std::mem::replace(&mut value.has_text, true) && c == '\n' {
                continue;
            }
            if value.types != Types::STRING {
                value.text.push(c);
                continue;
            }
            let mut written = std::mem::take(&mut value.text);
            if self.framed && c == '\n' {
                // The next characters may be the closing tag.
                value.text.push_str("\\n");
            } else {
                escape_json_char(c, &mut written);
            }
            calls.arguments(&written);
        }
    }

    /// Ends the value.
    pub(super) fn end(&mut self, calls: &mut Calls) {
        let Some(value) = self.value.take() else { return };
        if value.types == Types::STRING {
            return calls.arguments("\"");
        }
        let text = match value.text.strip_suffix('\n') {
            Some(text) if self.framed => text,
            _ => &value.text,
        };
        calls.arguments(&match value.is_exact {
            true => exact(text),
            false => convert(text, value.types),
        });
    }

    /// Ends the call.
    pub(super) fn close(&mut self, calls: &mut Calls) {
        calls.arguments("}");
        calls.end();
    }
}

/// Returns `text` if it is JSON, and as a string otherwise.
fn exact(text: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => text.trim().to_owned(),
        Err(_) => quote_json(text),
    }
}

/// Returns `text` as JSON of one of `types`, or as a string if it has none of them. As in vLLM, any
/// JSON may stand for an object or an array, and for a value that may be no string.
pub(super) fn convert(text: &str, types: Types) -> String {
    let word = text.trim();
    if types.null && (word.eq_ignore_ascii_case("null") || word == "None") {
        return "null".to_owned();
    }
    let is_json = serde_json::from_str::<serde_json::Value>(word).is_ok();
    if types.number && is_json && word.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return word.to_owned();
    }
    if types.boolean {
        match word.to_ascii_lowercase().as_str() {
            "true" | "1" => return "true".to_owned(),
            "false" | "0" => return "false".to_owned(),
            _ => {}
        }
    }
    if is_json && (types.composite || !types.string) {
        return word.to_owned();
    }
    let fits = |json: &String| match json.chars().next() {
        Some('{' | '[') => types.composite,
        Some('-' | '0'..='9') => types.number,
        Some('"') => types.string && types.composite,
        Some('n') => types.null,
        _ => false,
    };
    python_to_json(word).filter(fits).unwrap_or_else(|| quote_json(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcomes for JSON are those of vLLM's `coerce_to_schema_type`.
    #[test]
    fn values_take_the_type_that_the_schema_allows() {
        let none = Types::default();
        let number = Types { number: true, ..none };
        let boolean = Types { boolean: true, ..none };
        let composite = Types { composite: true, ..none };
        let nullable = Types { null: true, ..Types::STRING };
        let table = [
            ("3", number, "3"),
            (" 3.50 ", number, "3.50"),
            ("+3", number, "3"),
            ("many", number, "\"many\""),
            ("True", boolean, "true"),
            ("FALSE", boolean, "false"),
            ("1", boolean, "true"),
            ("0", Types { string: true, ..boolean }, "false"),
            ("1", Types { number: true, ..boolean }, "1"),
            ("yes", boolean, "\"yes\""),
            ("[1]", number, "[1]"),
            ("true", number, "true"),
            ("null", nullable, "null"),
            ("nulls", nullable, "\"nulls\""),
            ("3", nullable, "\"3\""),
            ("{\"a\": [1,\n2]}", composite, "{\"a\": [1,\n2]}"),
            ("{'a': None}", composite, "{\"a\": null}"),
            ("{broken", composite, "\"{broken\""),
            ("3", composite, "3"),
            ("3", Types { string: true, ..composite }, "3"),
            ("three", Types { string: true, ..composite }, "\"three\""),
            ("[1]", Types::STRING, "\"[1]\""),
            ("3", Types::ANY, "3"),
            ("[1]", Types::ANY, "[1]"),
            ("null", Types::ANY, "null"),
            ("true", Types::ANY, "true"),
            ("Dallas", Types::ANY, "\"Dallas\""),
            ("\"quoted\"", Types::ANY, "\"quoted\""),
            ("say \"hi\"", Types::ANY, "\"say \\\"hi\\\"\""),
            ("", Types::ANY, "\"\""),
            (" two \n", Types::ANY, "\" two \\n\""),
        ];
        for (text, types, json) in table {
            assert_eq!(convert(text, types), json, "{text}");
        }
    }
}
