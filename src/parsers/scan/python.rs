//! Python literals, a character at a time, converted to JSON as they arrive.

use super::json::escape_json_char;

/// Deepest value that is accepted, as in the JSON scanner.
const MAX_DEPTH: usize = 127;

/// Characters of the longest number.
const MAX_NUMBER_LEN: usize = 400;

/// Follows one literal to its end: strings, numbers, `True`, `None` (and `true`, `null`), lists,
/// tuples, and dicts with strings or numbers as keys.
#[derive(Debug, Default)]
pub(in super::super) struct PythonLiteral {
    open: Vec<Open>,
    state: State,
    /// The part of a number, a name or an escape that has been read.
    word: String,
}

/// The result of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum PythonStep {
    /// It belongs to the literal.
    More,
    /// It ends the literal.
    Done,
    /// The literal, a number or a name, ended before the character.
    DoneBefore,
    /// The literal cannot continue with the character.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Dict,
    List,
    Tuple,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// A value comes next. With `comma`, it is written after a comma in JSON.
    #[default]
    Value,
    /// An element or the end comes next. The flag says whether an element came before.
    Element {
        comma: bool,
    },
    /// A key or the end comes next. The flag says whether a key came before.
    Key {
        comma: bool,
    },
    Colon,
    Next,
    Text {
        quote: char,
        key: bool,
    },
    Escape {
        quote: char,
        key: bool,
    },
    /// `\xhh`, `\uhhhh`, `\Uhhhhhhhh`.
    Hex {
        quote: char,
        key: bool,
        left: u8,
    },
    Word {
        key: bool,
    },
    Over,
}

impl PythonLiteral {
    /// Takes a character, and appends to `json` the text that is certain by now.
    pub(in super::super) fn step(&mut self, c: char, json: &mut String) -> PythonStep {
        match self.state {
            State::Text { quote, key } => self.text(c, quote, key, json),
            State::Escape { quote, key } => self.escape(c, quote, key, json),
            State::Hex { quote, key, left } => self.hex(c, quote, key, left, json),
            State::Word { key } => self.word(c, key, json),
            State::Over => PythonStep::Bad,
            _ if c.is_whitespace() => PythonStep::More,
            State::Value => self.value(c, json),
            State::Element { comma } => match (c, self.open.last()) {
                (']', Some(Open::List)) | (')', Some(Open::Tuple)) => self.close(']', json),
                _ => {
                    json.push_str(if comma { ", " } else { "" });
                    self.value(c, json)
                }
            },
            State::Key { .. } if c == '}' => self.close('}', json),
            State::Key { comma } => {
                json.push_str(if comma { ", " } else { "" });
                self.key(c, json)
            }
            State::Colon if c == ':' => {
                json.push_str(": ");
                self.go(State::Value)
            }
            State::Colon => PythonStep::Bad,
            State::Next => match (c, self.open.last()) {
                (',', Some(Open::Dict)) => self.go(State::Key { comma: true }),
                (',', Some(Open::List | Open::Tuple)) => self.go(State::Element { comma: true }),
                ('}', Some(Open::Dict)) => self.close('}', json),
                (']', Some(Open::List)) | (')', Some(Open::Tuple)) => self.close(']', json),
                _ => PythonStep::Bad,
            },
        }
    }

    fn go(&mut self, state: State) -> PythonStep {
        self.state = state;
        PythonStep::More
    }

    fn value(&mut self, c: char, json: &mut String) -> PythonStep {
        match c {
            '[' | '(' | '{' if self.open.len() >= MAX_DEPTH => PythonStep::Bad,
            '[' => self.enter(Open::List, '[', State::Element { comma: false }, json),
            '(' => self.enter(Open::Tuple, '[', State::Element { comma: false }, json),
            '{' => self.enter(Open::Dict, '{', State::Key { comma: false }, json),
            '"' | '\'' => {
                json.push('"');
                self.go(State::Text { quote: c, key: false })
            }
            c if is_word(c) || c == '+' => {
                self.word.push(c);
                self.go(State::Word { key: false })
            }
            _ => PythonStep::Bad,
        }
    }

    fn key(&mut self, c: char, json: &mut String) -> PythonStep {
        match c {
            '"' | '\'' => {
                json.push('"');
                self.go(State::Text { quote: c, key: true })
            }
            c if is_word(c) => {
                self.word.push(c);
                self.go(State::Word { key: true })
            }
            _ => PythonStep::Bad,
        }
    }

    fn enter(&mut self, kind: Open, bracket: char, state: State, json: &mut String) -> PythonStep {
        self.open.push(kind);
        json.push(bracket);
        self.go(state)
    }

    fn close(&mut self, bracket: char, json: &mut String) -> PythonStep {
        self.open.pop();
        json.push(bracket);
        self.value_over()
    }

    fn value_over(&mut self) -> PythonStep {
        if self.open.is_empty() {
            self.state = State::Over;
            return PythonStep::Done;
        }
        self.go(State::Next)
    }

    fn text(&mut self, c: char, quote: char, key: bool, json: &mut String) -> PythonStep {
        match c {
            '\\' => return self.go(State::Escape { quote, key }),
            c if c != quote => {
                escape_json_char(c, json);
                return PythonStep::More;
            }
            _ => json.push('"'),
        }
        if key { self.go(State::Colon) } else { self.value_over() }
    }

    fn escape(&mut self, c: char, quote: char, key: bool, json: &mut String) -> PythonStep {
        let left = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        if left > 0 {
            return self.go(State::Hex { quote, key, left });
        }
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => escape_json_char(c, json),
            'n' => json.push_str("\\n"),
            'r' => json.push_str("\\r"),
            't' => json.push_str("\\t"),
            'b' => json.push_str("\\b"),
            'f' => json.push_str("\\f"),
            'v' => json.push_str("\\u000b"),
            'a' => json.push_str("\\u0007"),
            '0' => json.push_str("\\u0000"),
            // Python keeps the backslash of an unknown escape.
            c => {
                json.push_str("\\\\");
                escape_json_char(c, json);
            }
        }
        self.go(State::Text { quote, key })
    }

    fn hex(&mut self, c: char, quote: char, key: bool, left: u8, json: &mut String) -> PythonStep {
        if !c.is_ascii_hexdigit() {
            return PythonStep::Bad;
        }
        self.word.push(c);
        if left > 1 {
            return self.go(State::Hex { quote, key, left: left - 1 });
        }
        let code = u32::from_str_radix(&std::mem::take(&mut self.word), 16);
        // Half of a surrogate pair is no text.
        let c = code.ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        escape_json_char(c, json);
        self.go(State::Text { quote, key })
    }

    fn word(&mut self, c: char, key: bool, json: &mut String) -> PythonStep {
        let exponent = self.word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && self.word.ends_with(['e', 'E']);
        if is_word(c) && (c != '-' || exponent) || c == '+' && exponent {
            self.word.push(c);
            let fits = self.word.len() <= MAX_NUMBER_LEN;
            return if fits { PythonStep::More } else { PythonStep::Bad };
        }
        let word = std::mem::take(&mut self.word);
        let Some(value) = number(&word).or_else(|| constant(&word).filter(|_| !key)) else {
            return PythonStep::Bad;
        };
        if key {
            json.push_str(&format!("\"{value}\""));
            self.state = State::Colon;
            return self.step(c, json);
        }
        json.push_str(&value);
        match self.value_over() {
            PythonStep::Done => PythonStep::DoneBefore,
            _ => self.step(c, json),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

fn constant(word: &str) -> Option<String> {
    let value = match word {
        "True" | "true" => "true",
        "False" | "false" => "false",
        "None" | "null" => "null",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Returns a number as JSON writes it. `None` if it is not finite.
pub(super) fn number(word: &str) -> Option<String> {
    let digits = word.strip_prefix('+').unwrap_or(word).replace('_', "");
    if !digits.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if let Ok(number) = serde_json::from_str::<serde_json::Number>(&digits) {
        // As written, so that a long integer keeps its digits.
        return number.as_f64().filter(|value| value.is_finite()).map(|_| digits);
    }
    let is_decimal = digits.contains('.') && !digits.starts_with("00");
    let value = is_decimal.then(|| digits.parse::<f64>().ok()).flatten()?;
    serde_json::Number::from_f64(value).map(|number| number.to_string())
}

/// Returns all of `text` as JSON, if it is one Python literal.
pub(in super::super) fn python_to_json(text: &str) -> Option<String> {
    let mut literal = PythonLiteral::default();
    let mut json = String::new();
    let mut over = false;
    // The line break ends a number.
    for c in text.trim().chars().chain(['\n']) {
        over = match literal.step(c, &mut json) {
            PythonStep::More => false,
            PythonStep::Done | PythonStep::DoneBefore => true,
            PythonStep::Bad => return Some(json).filter(|_| over && c == '\n'),
        };
    }
    over.then_some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        let table = [
            ("'a'", Some("\"a\"")),
            (r#"'it\'s "x"'"#, Some(r#""it's \"x\"""#)),
            (r"'a\n\t\\\q\x41\u00e9\U0001F600\ud800'", Some("\"a\\n\\t\\\\\\\\qAé😀\u{fffd}\"")),
            ("'a\nb'", Some("\"a\\nb\"")),
            ("12", Some("12")),
            ("-1_000", Some("-1000")),
            ("+3", Some("3")),
            ("1.", Some("1.0")),
            (".5", Some("0.5")),
            ("1e-3", Some("1e-3")),
            ("123456789012345678901234567890", Some("123456789012345678901234567890")),
            ("1e999", None),
            ("007", None),
            ("inf", None),
            ("nan", None),
            ("2j", None),
            ("1-2", None),
            ("True", Some("true")),
            ("None", Some("null")),
            ("false", Some("false")),
            ("x", None),
            ("b'z'", None),
            ("[]", Some("[]")),
            ("()", Some("[]")),
            ("(1, 'a',)", Some("[1, \"a\"]")),
            ("{}", Some("{}")),
            ("{'a':1,\"b\": [None , True]}", Some("{\"a\": 1, \"b\": [null, true]}")),
            ("{1: 'x'}", Some("{\"1\": \"x\"}")),
            ("{None: 1}", None),
            ("{'a', 'b'}", None),
            ("[1 2]", None),
            ("[1", None),
            ("[1)", None),
            ("'a", None),
            ("", None),
            ("1 2", None),
            ("'a' 'b'", None),
        ];
        for (python, json) in table {
            assert_eq!(python_to_json(python).as_deref(), json, "{python}");
            if let Some(json) = json {
                serde_json::from_str::<serde_json::Value>(json).unwrap();
            }
        }
    }
}
