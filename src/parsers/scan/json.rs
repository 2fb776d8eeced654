//! JSON, a character at a time.

/// Deepest value that is accepted, as in `serde_json`.
const MAX_DEPTH: usize = 127;

/// Follows one JSON value to its end, strictly by the grammar. Raw control characters in strings
/// are the exception, because models write them. [`JsonStep::Control`] reports them.
#[derive(Debug, Default)]
pub(in super::super) struct JsonScanner {
    open: Vec<Open>,
    state: State,
}

/// The result of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum JsonStep {
    /// It belongs to the value.
    More,
    /// It belongs to a string of the value, where it must be escaped.
    Control,
    /// It ends the value.
    Done,
    /// The value, a number, ended before the character.
    DoneBefore,
    /// JSON cannot continue with the character.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Value,
    FirstElement,
    FirstKey,
    Key,
    Colon,
    Next,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Literal(&'static str),
    Number(Number),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl JsonScanner {
    pub(in super::super) fn step(&mut self, c: char) -> JsonStep {
        match self.state {
            State::Text { key } => self.text(c, key),
            State::Escape { key } => match c {
                'u' => self.go(State::Hex { key, left: 4 }),
                '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => self.go(State::Text { key }),
                _ => JsonStep::Bad,
            },
            State::Hex { key, left } => match (c.is_ascii_hexdigit(), left) {
                (false, _) => JsonStep::Bad,
                (true, 1) => self.go(State::Text { key }),
                (true, _) => self.go(State::Hex { key, left: left - 1 }),
            },
            State::Literal(rest) => match rest.strip_prefix(c) {
                None => JsonStep::Bad,
                Some("") => self.value_over(),
                Some(rest) => self.go(State::Literal(rest)),
            },
            State::Number(number) => self.number(c, number),
            State::Over => JsonStep::Bad,
            _ if matches!(c, ' ' | '\t' | '\n' | '\r') => JsonStep::More,
            State::Value => self.value(c),
            State::FirstElement if c == ']' => self.close(Open::Array),
            State::FirstElement => self.value(c),
            State::FirstKey if c == '}' => self.close(Open::Object),
            State::FirstKey | State::Key if c == '"' => self.go(State::Text { key: true }),
            State::FirstKey | State::Key => JsonStep::Bad,
            State::Colon if c == ':' => self.go(State::Value),
            State::Colon => JsonStep::Bad,
            State::Next => match (c, self.open.last()) {
                (',', Some(Open::Object)) => self.go(State::Key),
                (',', Some(Open::Array)) => self.go(State::Value),
                ('}', _) => self.close(Open::Object),
                (']', _) => self.close(Open::Array),
                _ => JsonStep::Bad,
            },
        }
    }

    fn go(&mut self, state: State) -> JsonStep {
        self.state = state;
        JsonStep::More
    }

    fn value(&mut self, c: char) -> JsonStep {
        match c {
            '{' | '[' if self.open.len() >= MAX_DEPTH => JsonStep::Bad,
            '{' => {
                self.open.push(Open::Object);
                self.go(State::FirstKey)
            }
            '[' => {
                self.open.push(Open::Array);
                self.go(State::FirstElement)
            }
            '"' => self.go(State::Text { key: false }),
            't' => self.go(State::Literal("rue")),
            'f' => self.go(State::Literal("alse")),
            'n' => self.go(State::Literal("ull")),
            '-' => self.go(State::Number(Number::Minus)),
            '0' => self.go(State::Number(Number::Zero)),
            '1'..='9' => self.go(State::Number(Number::Whole)),
            _ => JsonStep::Bad,
        }
    }

    fn text(&mut self, c: char, key: bool) -> JsonStep {
        match c {
            '"' if key => self.go(State::Colon),
            '"' => self.value_over(),
            '\\' => self.go(State::Escape { key }),
            '\0'..='\x1f' => JsonStep::Control,
            _ => JsonStep::More,
        }
    }

    fn number(&mut self, c: char, number: Number) -> JsonStep {
        use Number::{Exponent, ExponentDigits, ExponentSign, Fraction, Minus, Point, Whole, Zero};
        let next = match (number, c) {
            (Minus, '0') => Zero,
            (Minus | Whole, '0'..='9') => Whole,
            (Zero | Whole, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Whole | Fraction, 'e' | 'E') => Exponent,
            (Exponent, '+' | '-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, '0'..='9') => ExponentDigits,
            (Minus | Point | Exponent | ExponentSign, _) => return JsonStep::Bad,
            (Zero | Whole | Fraction | ExponentDigits, _) => {
                return match self.value_over() {
                    JsonStep::Done => JsonStep::DoneBefore,
                    _ => self.step(c),
                };
            }
        };
        self.go(State::Number(next))
    }

    fn close(&mut self, kind: Open) -> JsonStep {
        match self.open.pop() {
            Some(open) if open == kind => self.value_over(),
            _ => JsonStep::Bad,
        }
    }

    fn value_over(&mut self) -> JsonStep {
        if self.open.is_empty() {
            self.state = State::Over;
            return JsonStep::Done;
        }
        self.go(State::Next)
    }
}

/// Appends `c` as it is written within a JSON string.
pub(in super::super) fn escape_json_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

/// Returns `text` as a JSON string.
pub(in super::super) fn quote_json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    text.chars().for_each(|c| escape_json_char(c, &mut quoted));
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns whether the scanner takes all of `text` for one value.
    fn accepts(text: &str) -> bool {
        let mut scanner = JsonScanner::default();
        let mut steps = text.chars().map(|c| scanner.step(c)).collect::<Vec<_>>();
        steps.push(scanner.step('\n'));
        let over = steps.iter().position(|step| *step != JsonStep::More);
        match over.map(|at| (steps[at], at)) {
            Some((JsonStep::Done, at)) => {
                text.chars().skip(at + 1).all(|c| matches!(c, ' ' | '\t' | '\n' | '\r'))
            }
            Some((JsonStep::DoneBefore, at)) => {
                text.chars().skip(at).all(|c| matches!(c, ' ' | '\t' | '\n' | '\r'))
            }
            _ => false,
        }
    }

    fn is_json(text: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(text).is_ok()
    }

    #[test]
    fn agrees_with_serde_json() {
        let texts = [
            "{}",
            "[]",
            "0",
            "-0.5e+7",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "true",
            "tru",
            "nul",
            "null",
            "\"a\\u00e9\\n\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "{\"a\": [1, {\"b\": null}], \"c\": -1}",
            "{\"a\" 1}",
            "{\"a\": 1,}",
            "[1,]",
            "[1 2]",
            "{1: 2}",
            "[}",
            "{]",
            "",
            " ",
            "[[]",
            "1 ",
            "{\"a\":1}}",
            "[1,\n2\t]",
            "\"€😀\"",
            "'a'",
        ];
        for text in texts {
            assert_eq!(accepts(text), is_json(text), "{text}");
        }
        let deep = |n| "[".repeat(n) + &"]".repeat(n);
        assert!(accepts(&deep(127)) && !accepts(&deep(128)));
        assert!(is_json(&deep(127)) && !is_json(&deep(128)));
    }

    #[test]
    fn quotes_as_serde_json() {
        let text = "a\"b\\c\n\u{1}é\u{7f}😀";
        assert_eq!(serde_json::from_str::<String>(&quote_json(text)).unwrap(), text);
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_garbage(
            text in "[\\[\\]{}\", :0-2.eE+\\-\\\\untrflasb]{0,12}",
        ) {
            prop_assert_eq!(accepts(&text), is_json(&text));
        }
    }
}
