//! The input of a call whose JSON text may be cut off.

use serde_json::{Map, Value};

/// Deepest nesting that is read, equal to serde_json's own limit.
const MAX_DEPTH: usize = 127;

/// Returns the object that `text` is or begins, with each complete member and element. A client's
/// library makes the same of a stream's `input_json_delta`s. Returns an empty object if `text`
/// begins none.
pub(super) fn partial_input(text: &str) -> Map<String, Value> {
    if let Ok(whole) = serde_json::from_str(text) {
        return whole;
    }
    let mut reader = Reader { closers: String::new(), expects_key: false, whole: None };
    reader.read(text);
    let Some((end, closers)) = reader.whole else { return Map::new() };
    let closers: String = closers.chars().rev().collect();
    serde_json::from_str(&format!("{}{closers}", &text[..end])).unwrap_or_default()
}

/// Reads the text up to the last place where a value has just ended or a container begun.
struct Reader {
    /// The closers of the open containers, the innermost last.
    closers: String,
    /// The next string is the key of a member.
    expects_key: bool,
    /// That place, and the closers at that place.
    whole: Option<(usize, String)>,
}

impl Reader {
    fn read(&mut self, text: &str) {
        let mut chars = text.char_indices().peekable();
        while let Some((start, c)) = chars.next() {
            match c {
                '"' => {
                    let Some(end) = string_end(&text[start..]) else { return };
                    while chars.next_if(|(place, _)| *place < start + end).is_some() {}
                    if !self.expects_key {
                        self.mark(start + end);
                    }
                }
                '{' | '[' => {
                    if self.closers.len() == MAX_DEPTH {
                        return;
                    }
                    self.closers.push(if c == '{' { '}' } else { ']' });
                    self.expects_key = c == '{';
                    self.mark(start + 1);
                }
                '}' | ']' => {
                    if self.closers.pop() != Some(c) {
                        return;
                    }
                    self.mark(start + 1);
                }
                ',' => self.expects_key = self.closers.ends_with('}'),
                ':' => self.expects_key = false,
                c if c.is_ascii_whitespace() => {}
                _ => {
                    // A number or a word. At the end of the text it may be incomplete.
                    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                    while chars.next_if(|(_, c)| is_part(*c)).is_some() {}
                    let Some(&(end, _)) = chars.peek() else { return };
                    let is_value = serde_json::from_str::<Value>(&text[start..end]).is_ok();
                    if self.expects_key || !is_value {
                        return;
                    }
                    self.mark(end);
                }
            }
        }
    }

    fn mark(&mut self, end: usize) {
        self.whole = Some((end, self.closers.clone()));
    }
}

/// Returns the end, after the closing quote, of the string that `text` begins with.
fn string_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map(|(place, _)| place + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complete_values_are_kept() {
        let table = [
            ("", json!({})),
            ("{", json!({})),
            ("{\"a", json!({})),
            ("{\"a\"", json!({})),
            ("{\"a\": ", json!({})),
            ("{\"a\": \"x", json!({})),
            ("{\"a\": \"x\\\"", json!({})),
            ("{\"a\": \"x\"", json!({"a": "x"})),
            ("{\"a\": 12", json!({})),
            ("{\"a\": 12,", json!({"a": 12})),
            ("{\"a\": tru", json!({})),
            ("{\"a\": true ", json!({"a": true})),
            (
                "{\"a\": {\"b\": [1, {\"c\": \"é]}\"}, [2, \"",
                json!({"a": {"b": [1, {"c": "é]}"}, [2]]}}),
            ),
            ("{\"a\": 1, \"b\": {", json!({"a": 1, "b": {}})),
            ("{\"a\": 1, \"b\": nope", json!({"a": 1})),
            ("{\"a\": 1] \"b\": 2", json!({"a": 1})),
            ("[1, 2]", json!({})),
            ("Ulm", json!({})),
        ];
        for (text, input) in table {
            assert_eq!(Value::Object(partial_input(text)), input, "{text}");
        }
    }

    #[test]
    fn every_beginning_of_an_input_is_a_part_of_it() {
        let text = json!({"a\"": [1.5e3, "\\\"é", null, {"b": [], "c": {"d": false}}], "e": -1})
            .to_string();
        let mut num_members = 0;
        for (end, _) in text.char_indices() {
            let part =
                Value::Object(partial_input(&text[..end])).to_string().replace(['}', ']'], "");
            let whole = text.replace(['}', ']'], "");
            assert!(part.is_empty() || whole.starts_with(&part), "{part}");
            assert!(part.len() >= num_members, "it only grows: {part}");
            num_members = part.len();
        }
        assert_eq!(Value::Object(partial_input(&text)).to_string(), text);
    }

    #[test]
    fn no_nesting_is_too_deep() {
        let text = "{\"a\":".repeat(100_000);
        assert!(Value::Object(partial_input(&text)).to_string().len() < 1_000);
    }
}
