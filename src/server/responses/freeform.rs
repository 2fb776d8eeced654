//! Custom tools, which take any text. As in vLLM, the model sees a function with one argument, a
//! string. The text is decoded from the arguments while they arrive.

use serde_json::{Value, json};

/// The argument, and its name as JSON.
const INPUT: &str = "input";
const KEY: &str = "\"input\"";

/// Returns the schema of the function's arguments.
pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
        "required": [INPUT],
        "additionalProperties": false,
    })
}

/// Returns the arguments with this input.
pub(super) fn arguments(input: &str) -> String {
    json!({INPUT: input}).to_string()
}

/// The arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Freeform {
    arguments: String,
    /// Number of their bytes that were read. 0 before the text of the input.
    num_read: usize,
    /// Whether the text of the input has ended.
    is_read: bool,
    /// The input so far.
    input: String,
}

impl Freeform {
    /// Adds to the arguments. Returns the text that follows in the input.
    pub(super) fn push(&mut self, delta: &str) -> String {
        self.arguments.push_str(delta);
        if self.num_read == 0 {
            self.num_read = begin(&self.arguments).unwrap_or(0);
        }
        if self.num_read == 0 || self.is_read {
            return String::new();
        }
        let (text, num_bytes, is_over) = decode(&self.arguments[self.num_read..]);
        self.num_read += num_bytes;
        self.is_read = is_over;
        self.input.push_str(&text);
        text
    }

    /// Returns the input of a complete call, and the part that [`Self::push`] has not returned. As
    /// in vLLM, arguments of another form are the input themselves.
    pub(super) fn end(self) -> (String, String) {
        let whole: Option<Value> = serde_json::from_str(&self.arguments).ok();
        let input = whole.as_ref().and_then(|whole| whole.get(INPUT)?.as_str());
        let input = input.unwrap_or(&self.arguments);
        let rest = input.strip_prefix(self.input.as_str()).unwrap_or(input);
        (input.to_owned(), rest.to_owned())
    }
}

/// Returns the place of the input's text in `arguments`, if they begin with it and it is there.
fn begin(arguments: &str) -> Option<usize> {
    let rest = arguments.trim_start().strip_prefix('{')?.trim_start();
    let rest = rest.strip_prefix(KEY)?.trim_start().strip_prefix(':')?;
    let rest = rest.trim_start().strip_prefix('"')?;
    Some(arguments.len() - rest.len())
}

/// Reads a JSON string behind its first quote, as far as it is there. Returns its text, the number
/// of bytes that were read, and whether it ends.
fn decode(json: &str) -> (String, usize, bool) {
    let (mut text, mut rest) = (String::new(), json);
    loop {
        let num_plain = rest.find(['"', '\\']).unwrap_or(rest.len());
        text.push_str(&rest[..num_plain]);
        rest = &rest[num_plain..];
        let num_read = json.len() - rest.len();
        if rest.starts_with('"') {
            return (text, num_read, true);
        }
        let Some((escaped, num_bytes)) = escape(rest) else { return (text, num_read, false) };
        text.push_str(&escaped);
        rest = &rest[num_bytes..];
    }
}

/// Returns the text of the escape with which `json` begins, and its length. `None` if it is not
/// there to its end.
fn escape(json: &str) -> Option<(String, usize)> {
    let unit = || u16::from_str_radix(json.get(2..6)?, 16).ok();
    let num_bytes = match json.get(1..2)? {
        // The other half of the character follows.
        "u" if (0xd800..0xdc00).contains(&unit()?) => 12,
        "u" => 6,
        _ => 2,
    };
    let text = serde_json::from_str(&format!("\"{}\"", json.get(..num_bytes)?)).ok()?;
    Some((text, num_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the deltas, the input, and the part that is missing at the end.
    fn read(deltas: &[&str]) -> (Vec<String>, String, String) {
        let mut freeform = Freeform::default();
        let texts = deltas.iter().map(|delta| freeform.push(delta)).collect();
        let (input, rest) = freeform.end();
        (texts, input, rest)
    }

    #[test]
    fn the_input_is_decoded_wherever_the_arguments_are_split() {
        let input = "a \"quoted\" line\nand \u{1f600} \\ \u{e4}\t{}";
        let escaped = r#"{ "input" : "\u0061 \"quoted\" line\nand \ud83d\ude00 \\ ä\t{}" }"#;
        for json in [arguments(input), escaped.to_owned()] {
            let places = (0..=json.len()).filter(|place| json.is_char_boundary(*place));
            for place in places {
                let (texts, found, rest) = read(&[&json[..place], &json[place..]]);
                assert_eq!((texts.concat(), &*found, &*rest), (input.to_owned(), input, ""));
            }
        }
    }

    #[test]
    fn arguments_of_another_form_are_the_input() {
        let whole = |json: &str| (vec![String::new()], json.to_owned(), json.to_owned());
        for json in ["plain", "{\"text\": \"a\"}", "{\"input\": 1}", "[]", ""] {
            assert_eq!(read(&[json]), whole(json), "{json}");
        }
        let (texts, input, rest) = read(&["{\"other\": 1, \"input\": \"a", "b\"}"]);
        assert_eq!((texts.concat(), &*input, &*rest), (String::new(), "ab", "ab"));
    }
}
