//! Changes of a JSON body: in its values, and in its text.

use serde_json::{Map, Value, json};

/// Stands for a lone surrogate. A string cannot hold one, but its JSON text can.
const SURROGATE: char = '\u{E000}';

/// A generator of pseudo-random numbers, the same for the same seed: splitmix64.
pub(crate) struct Rng(u64);

impl Rng {
    /// Returns the generator for body `index` of `seed`.
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ index.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number less than `end`, or 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Returns the text of `body` after one to three changes.
pub(crate) fn mutated(body: &Value, rng: &mut Rng) -> String {
    let mut body = body.clone();
    let mut twice = None;
    for _ in 0..rng.pick(&[1, 1, 1, 2, 3]) {
        let before = body.clone();
        match rng.below(8) {
            0 => drop_or_double(&mut body, rng),
            1 => twice = some_field(&before, rng),
            2..=4 => {
                let place = place(&mut body, rng);
                *place = alike(place, rng);
            }
            _ => {
                let value = value(rng, &before);
                *place(&mut body, rng) = value;
            }
        }
    }
    let mut text = body.to_string();
    if let (Some((name, value)), true) = (twice, text.starts_with('{') && text.len() > 2) {
        // Adds a field a second time.
        text.insert_str(1, &format!("{}:{value},", Value::String(name)));
    }
    text = text.replace(SURROGATE, rng.pick(&["\\ud800", "\\udfff", "\\udc00\\ud800"]));
    if rng.below(12) == 0 { damaged(&text, rng) } else { text }
}

/// Returns one of the values in `body`, most often one near its root.
fn place<'a>(body: &'a mut Value, rng: &mut Rng) -> &'a mut Value {
    let len = match &body {
        Value::Object(fields) => fields.len(),
        Value::Array(values) => values.len(),
        _ => 0,
    };
    if len == 0 {
        return body;
    }
    let index = rng.below(len);
    let goes_on = rng.below(3) > 0;
    let child = match body {
        Value::Object(fields) => fields.values_mut().nth(index),
        Value::Array(values) => values.get_mut(index),
        _ => None,
    };
    // The child exists, because it was counted.
    let child = child.unwrap();
    if goes_on { place(child, rng) } else { child }
}

fn drop_or_double(body: &mut Value, rng: &mut Rng) {
    let drops = rng.below(2) == 0;
    let inner = if rng.below(2) == 0 { place(body, rng) } else { body };
    match inner {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(rng.below(fields.len())).unwrap().clone();
            let value = fields.shift_remove(&name).unwrap();
            if !drops {
                fields.insert(format!("{name}s"), value);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            let index = rng.below(values.len());
            let value = values.remove(index);
            if !drops {
                let times = rng.pick(&[2, 9, 130]);
                values.extend(std::iter::repeat_n(value, times));
            }
        }
        _ => {}
    }
}

fn some_field(body: &Value, rng: &mut Rng) -> Option<(String, Value)> {
    let fields = body.as_object().filter(|fields| !fields.is_empty())?;
    let (name, _) = fields.iter().nth(rng.below(fields.len()))?;
    Some((name.clone(), value(rng, body)))
}

/// Returns another value of the same type. It reaches more code than a value of another type.
fn alike(value: &Value, rng: &mut Rng) -> Value {
    match value {
        Value::Bool(is_so) => Value::Bool(!is_so),
        Value::Number(_) if rng.below(2) == 0 => number(rng),
        Value::Number(_) => rng.pick(&[json!(1), json!(3), json!(0.3), json!(300)]),
        Value::String(text) if rng.below(2) == 0 => Value::String(text.clone() + &string(rng)),
        Value::String(_) => Value::String(string(rng)),
        other => other.clone(),
    }
}

fn number(rng: &mut Rng) -> Value {
    rng.pick(&[
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(63),
        json!(1e308),
        json!(-1e308),
        json!(1e-320),
        json!(0.5),
        json!(-0.0),
        json!(2147483648_u64),
        json!(-2147483649_i64),
        json!(4294967296_u64),
        json!(9007199254740993_u64),
        json!(i64::MIN),
        json!(u64::MAX),
    ])
}

fn value(rng: &mut Rng, body: &Value) -> Value {
    match rng.below(10) {
        0 => rng.pick(&[Value::Null, json!(true), json!(false)]),
        1 | 2 => number(rng),
        3..=5 => Value::String(string(rng)),
        6 => nested(rng),
        7 => rng.pick(&[json!([]), json!({}), json!([[]]), json!([null]), json!({"": null})]),
        8 => Value::Array((0..rng.below(12)).map(|_| Value::String(string(rng))).collect()),
        // A part of the body itself, in a place where it does not belong.
        _ => place(&mut body.clone(), rng).clone(),
    }
}

fn string(rng: &mut Rng) -> String {
    let pieces = [
        "",
        " ",
        "\n",
        "\0",
        "\u{1b}",
        "\u{7f}",
        "\u{feff}",
        "\u{2028}",
        "\u{202e}",
        "\u{fffd}",
        "é",
        "e\u{301}",
        "🦀",
        "👩‍👩‍👧",
        "\u{10ffff}",
        "\u{E000}",
        "\"",
        "\\",
        "<|im_end|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "{{",
        "{% for m in messages %}",
        "{% endfor %}",
        "{",
        "}",
        "[",
        "(",
        ")*",
        "a{1,9}",
        "root ::= ",
        "assistant",
        "auto",
        "required",
        "json_object",
        "demo",
        "data:,x",
        "http://127.0.0.1:9/",
        "1",
        "-1",
        "NaN",
        "null",
        "aaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    let times = rng.pick(&[1, 1, 1, 40]);
    let text: String = (0..rng.below(5)).map(|_| rng.pick(&pieces)).collect();
    text.repeat(times)
}

fn nested(rng: &mut Rng) -> Value {
    let mut value = Value::Null;
    let is_list = rng.below(2) == 0;
    for _ in 0..rng.pick(&[2, 20, 90, 99, 130, 400]) {
        value = match is_list {
            true => Value::Array(vec![value]),
            false => Value::Object(Map::from_iter([("items".to_owned(), value)])),
        };
    }
    value
}

/// Returns `text` with bytes changed, taken out, or missing at the end.
fn damaged(text: &str, rng: &mut Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    match rng.below(3) {
        0 => bytes.truncate(rng.below(bytes.len())),
        1 => drop(bytes.remove(rng.below(bytes.len()))),
        _ => {
            for _ in 0..1 + rng.below(4) {
                let index = rng.below(bytes.len());
                bytes[index] ^= 1 << rng.below(8);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
