//! `tojson` as transformers defines it: Python's `json.dumps` without ASCII escapes.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// The options of `json.dumps` that templates can set.
struct Options {
    ensure_ascii: bool,
    /// One level of indentation; `None` writes everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Returns `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let options = Options::new(&positional, &kwargs)?;
    kwargs.assert_all_used()?;
    let mut json = String::new();
    options.write(value, 0, &mut json)?;
    Ok(Value::from(json))
}

impl Options {
    fn new(positional: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
        let option = |index: usize| -> Result<Option<Value>, Error> {
            let named = kwargs.get::<Option<Value>>(NAMES[index])?;
            Ok(named.or_else(|| positional.get(index).cloned()).filter(|value| !value.is_none()))
        };
        let indent = option(1)?.map(indentation).transpose()?;
        let (item_separator, key_separator) = match option(2)? {
            Some(pair) => separators(&pair)?,
            None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
            None => (", ".to_owned(), ": ".to_owned()),
        };
        Ok(Self {
            ensure_ascii: option(0)?.is_some_and(|value| value.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys: option(3)?.is_some_and(|value| value.is_true()),
        })
    }

    fn write(&self, value: &Value, depth: usize, json: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => json.push_str("null"),
            ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => json.push_str(&number(value)),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), json),
            ValueKind::Map => self.write_object(value, depth, json)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.collect::<Vec<_>>();
                self.write_nested('[', ']', items.len(), depth, json, |index, json| {
                    self.write(&items[index], depth + 1, json)
                })?;
            }
            kind => {
                let detail = format!("tojson: a value of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::BadSerialization, detail));
            }
        }
        Ok(())
    }

    fn write_object(&self, map: &Value, depth: usize, json: &mut String) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in map.try_iter()? {
            let value = map.get_item(&key)?;
            entries.push((key_text(&key)?, value));
        }
        if self.sort_keys {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        self.write_nested('{', '}', entries.len(), depth, json, |index, json| {
            let (key, value) = &entries[index];
            self.write_string(key, json);
            json.push_str(&self.key_separator);
            self.write(value, depth + 1, json)
        })
    }

    fn write_nested(
        &self,
        open: char,
        close: char,
        count: usize,
        depth: usize,
        json: &mut String,
        write_item: impl Fn(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        json.push(open);
        for index in 0..count {
            if index > 0 {
                json.push_str(&self.item_separator);
            }
            self.break_line(depth + 1, json);
            write_item(index, json)?;
        }
        if count > 0 {
            self.break_line(depth, json);
        }
        json.push(close);
        Ok(())
    }

    fn break_line(&self, depth: usize, json: &mut String) {
        if let Some(indent) = &self.indent {
            json.push('\n');
            json.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn write_string(&self, text: &str, json: &mut String) {
        json.push('"');
        for c in text.chars() {
            match c {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                '\u{8}' => json.push_str("\\b"),
                '\u{c}' => json.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(json, "\\u{unit:04x}");
                    }
                }
                c => json.push(c),
            }
        }
        json.push('"');
    }
}

fn indentation(value: Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    match value.as_i64() {
        Some(width @ ..=64) => Ok(" ".repeat(usize::try_from(width).unwrap_or(0))),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson: indent is {value}, expected a string or a number up to 64"),
        )),
    }
}

fn separators(pair: &Value) -> Result<(String, String), Error> {
    let parts: Vec<String> =
        pair.try_iter()?.filter_map(|part| part.as_str().map(str::to_owned)).collect();
    <[String; 2]>::try_from(parts).map(|[item, key]| (item, key)).map_err(|_| {
        let detail = format!("tojson: separators is {pair}, expected two strings");
        Error::new(ErrorKind::InvalidOperation, detail)
    })
}

/// Returns a key as a string, as Python writes keys that are none.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        ValueKind::Number => Ok(number(key)),
        kind => {
            let detail = format!("tojson: keys must be strings or numbers, not {kind}");
            Err(Error::new(ErrorKind::BadSerialization, detail))
        }
    }
}

/// Returns an integer, or a float as Python's `repr` writes it: the shortest digits that read back
/// the same, with an exponent below 1e-4 and from 1e16 on.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if float == 0.0 || (1e-4..1e16).contains(&float.abs()) {
        return format!("{float:?}");
    }
    let scientific = format!("{float:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => scientific,
    }
}
