//! Files of `vllm serve --config`: the flags of vLLM in a small part of YAML. A file may have keys
//! with texts, numbers, switches, lists and objects. Anchors, tags and texts of several lines are
//! refused.

use serde_json::{Map, Number, Value as Json};

/// Deepest nesting of a file.
const DEPTH_MAX: usize = 16;

/// A line without its indentation and its comment.
struct Line<'a> {
    /// The number of the line in the file, from 1.
    number: usize,
    indent: usize,
    text: &'a str,
}

/// Returns the keys of the file with their values.
///
/// # Errors
/// The line that is not understood, and why.
pub(super) fn parse(text: &str) -> Result<Map<String, Json>, String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let text = without_comment(line).trim_end();
        let content = text.trim_start_matches(' ');
        if content.is_empty() || lines.is_empty() && content == "---" {
            continue;
        }
        let (number, indent) = (index + 1, text.len() - content.len());
        if content.starts_with('\t') {
            return Err(format!("line {number} is indented with a tab"));
        }
        lines.push(Line { number, indent, text: content });
    }
    let mut rest = lines.as_slice();
    let Some(first) = rest.first() else { return Ok(Map::new()) };
    match (block(&mut rest, first.indent, 0)?, rest.first()) {
        (Json::Object(keys), None) => Ok(keys),
        (_, Some(line)) => Err(format!("line {} has another indentation", line.number)),
        (_, None) => Err("the file has no keys".to_owned()),
    }
}

/// Returns a line up to its comment: a `#` at the beginning or after white space, outside quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open && before != '\\' => quote = None,
            Some(_) => {}
            None if c == '#' && before.is_whitespace() => return &line[..at],
            // An apostrophe within a word opens nothing.
            None if matches!(c, '"' | '\'') && !before.is_alphanumeric() => quote = Some(c),
            None => {}
        }
        before = c;
    }
    line
}

/// Reads the lines of a block with this indentation: a list or an object.
fn block(rest: &mut &[Line<'_>], indent: usize, depth: usize) -> Result<Json, String> {
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} objects are nested"));
    }
    let (mut list, mut object) = (Vec::new(), Map::new());
    while let Some((line, after)) = rest.split_first().filter(|(line, _)| line.indent == indent) {
        let failed = |why: &str| format!("line {}: {why}: {}", line.number, line.text);
        if let Some(item) = item(line.text) {
            if !object.is_empty() {
                return Err(failed("an item of a list stands among keys"));
            }
            *rest = after;
            list.push(scalar(item).map_err(failed)?);
            continue;
        }
        if !list.is_empty() {
            // The list belongs to a key with the same indentation.
            break;
        }
        let (key, value) =
            key_and_value(line.text).ok_or_else(|| failed("expected `key: value`"))?;
        *rest = after;
        let inner = rest.first().filter(|next| {
            next.indent > indent || next.indent == indent && item(next.text).is_some()
        });
        let value = match (value, inner.map(|next| next.indent)) {
            ("", Some(inner)) => block(rest, inner, depth + 1)?,
            ("", None) => Json::Null,
            (value, _) => scalar(value).map_err(failed)?,
        };
        if object.insert(key, value).is_some() {
            return Err(failed("the key stands twice"));
        }
    }
    Ok(if list.is_empty() { Json::Object(object) } else { Json::Array(list) })
}

/// Returns the text of an item of a list.
fn item(text: &str) -> Option<&str> {
    match text.strip_prefix('-')? {
        "" => Some(""),
        rest => rest.strip_prefix(' ').map(str::trim),
    }
}

/// Returns a key without its quotes, and the text behind its colon.
fn key_and_value(text: &str) -> Option<(String, &str)> {
    let (key, value) = match text.split_once(": ") {
        Some((key, value)) => (key, value.trim()),
        None => (text.strip_suffix(':')?, ""),
    };
    let key = key.trim().trim_matches(['"', '\'']).to_owned();
    (!key.is_empty() && !key.contains(['{', '[', '"'])).then_some((key, value))
}

/// Returns the value of a text.
fn scalar(text: &str) -> Result<Json, &'static str> {
    let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    match text.chars().next() {
        None => Ok(Json::Null),
        Some('"') => serde_json::from_str(text).map_err(|_| "the text in quotes is not understood"),
        Some('\'') => match inner('\'', '\'') {
            Some(text) => Ok(text.replace("''", "'").into()),
            None => Err("the text in quotes does not end"),
        },
        Some('{' | '[') => match (serde_json::from_str(text), inner('[', ']')) {
            (Ok(value), _) => Ok(value),
            (Err(_), Some(items)) if !items.contains(['[', '{', '"', '\'']) => {
                items.split(',').map(|item| scalar(item.trim())).collect()
            }
            (Err(_), _) => Err("write the object or the list as JSON"),
        },
        Some('&' | '*' | '!' | '|' | '>' | '%' | '@' | '`') => {
            Err("this kind of YAML is not understood")
        }
        Some(_) if text.contains(": ") => Err("a text with a colon needs quotes"),
        Some(_) => Ok(plain(text)),
    }
}

/// Returns the value of a text without quotes.
fn plain(text: &str) -> Json {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => true.into(),
        "false" | "no" | "off" => false.into(),
        "null" | "~" => Json::Null,
        _ => match serde_json::from_str::<Number>(text) {
            Ok(number) => Json::Number(number),
            Err(_) => text.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_have_texts_numbers_switches_lists_and_objects() {
        let text = "---\n# A server.\nmodel: org/name  # of the hub\nport: 12323\nhost: \"0.0.0.0\"\n\
                    served-model-name: [a, b]\nenable-lora: true\nlora-modules:\n- x=/a\n- 'y=it''s'\n\
                    max-model-len: 4k\ngpu-memory-utilization: 0.9\nspeculative-config:\n  method: \
                    ngram\n  deep:\n    num: 3\nallowed-origins:\n  - \"*\"\nempty:\nno-x: off\n\
                    url: http://x/#y\nquoted: 'a # b'\nobject: {\"a\": [1]}\n";
        let expected = json!({
            "model": "org/name", "port": 12323, "host": "0.0.0.0", "served-model-name": ["a", "b"],
            "enable-lora": true, "lora-modules": ["x=/a", "y=it's"], "max-model-len": "4k",
            "gpu-memory-utilization": 0.9,
            "speculative-config": {"method": "ngram", "deep": {"num": 3}},
            "allowed-origins": ["*"], "empty": null, "no-x": false, "url": "http://x/#y",
            "quoted": "a # b", "object": {"a": [1]},
        });
        assert_eq!(parse(text).map(Json::Object), Ok(expected));
        assert_eq!(parse("\n# nothing\n"), Ok(Map::new()));
    }

    #[test]
    fn the_rest_of_yaml_is_refused_with_its_line() {
        for (text, why) in [
            ("a: 1\n\tb: 2\n", "line 2 is indented with a tab"),
            ("a: 1\n  b: 2\n", "line 2 has another indentation"),
            ("a: |\n  text\n", "line 1: this kind of YAML is not understood: a: |"),
            ("a: &b 1\n", "line 1: this kind of YAML"),
            ("a: 1\na: 2\n", "line 2: the key stands twice"),
            ("word\n", "line 1: expected `key: value`: word"),
            ("- a\n", "the file has no keys"),
            ("a: {b: 1}\n", "line 1: write the object or the list as JSON"),
            ("a: \"b\n", "line 1: the text in quotes is not understood"),
            ("a:\n  - b: 1\n", "line 2: a text with a colon needs quotes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
