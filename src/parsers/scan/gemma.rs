//! Values as Gemma 4 and FunctionGemma write them, a character at a time, converted to JSON as they
//! arrive.
//!
//! A text stands between two marks (`<|"|>` or `<escape>`) and has no escapes. Keys are bare.
//! Numbers, `true`, `false` and `null` are those of JSON, and any other bare word is a text. Texts
//! and keys may also be quoted as in JSON.

use super::json::{escape_json_char, quote_json};
use super::markers::MarkerFinder;

/// Deepest value that is accepted, as in the JSON scanner.
const MAX_DEPTH: usize = 127;

/// Bytes of the longest key, and of the longest bare word.
const MAX_WORD_LEN: usize = 4_096;

/// Follows one value to its end.
#[derive(Debug)]
pub(in super::super) struct GemmaLiteral {
    /// The mark at both ends of a text. It begins with `<`.
    mark: &'static [&'static str; 1],
    open: Vec<Open>,
    state: State,
    /// The part of a bare word or of a mark that has been read.
    word: String,
    finder: MarkerFinder,
    /// The bare key of the current parameter.
    key: String,
    /// The parameters whose texts stay texts. Those of others are JSON where they can be. `None`:
    /// all texts stay texts.
    texts: Option<Vec<String>>,
}

/// The result of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum GemmaStep {
    /// It belongs to the value.
    More,
    /// It ends the value.
    Done,
    /// The value cannot continue with the character.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    /// An element or the end comes next. The flag says whether an element came before.
    Element {
        comma: bool,
    },
    /// A key or the end comes next. The flag says whether a key came before.
    Key {
        comma: bool,
    },
    BareKey,
    Colon,
    /// A mark has begun.
    Quote {
        key: bool,
    },
    Text {
        key: bool,
    },
    /// A text that is quoted as in JSON. The flag says whether a backslash came before.
    Quoted {
        key: bool,
        is_escaped: bool,
    },
    Bare,
    Next,
    Over,
}

impl GemmaLiteral {
    /// Returns a reader of a value whose texts stand between `mark`, which begins with `<`.
    pub(in super::super) fn new(mark: &'static [&'static str; 1]) -> Self {
        Self {
            mark,
            open: Vec::new(),
            state: State::Value,
            word: String::new(),
            finder: MarkerFinder::new(mark),
            key: String::new(),
            texts: None,
        }
    }

    /// As [`new`](Self::new). A text of a parameter becomes the JSON that it holds, if it holds
    /// some, unless the parameter is among `texts`.
    pub(in super::super) fn converting(
        mark: &'static [&'static str; 1],
        texts: Vec<String>,
    ) -> Self {
        Self { texts: Some(texts), ..Self::new(mark) }
    }

    /// Returns whether the current text may be JSON.
    fn is_converted(&self) -> bool {
        let is_text = |texts: &Vec<String>| texts.contains(&self.key);
        self.open.len() == 1 && self.texts.as_ref().is_some_and(|texts| !is_text(texts))
    }

    /// Takes a character, and appends to `json` the text that is certain by now.
    pub(in super::super) fn step(&mut self, c: char, json: &mut String) -> GemmaStep {
        match self.state {
            State::Text { key } => self.text(c, key, json),
            State::Quoted { key, is_escaped } => self.quoted(c, key, is_escaped, json),
            State::Quote { key } => self.quote(c, key, json),
            State::BareKey => self.bare_key(c, json),
            State::Bare => self.bare(c, json),
            State::Over => GemmaStep::Bad,
            _ if c.is_whitespace() => GemmaStep::More,
            State::Value => self.value(c, json),
            State::Element { .. } if c == ']' => self.close(Open::Array, json),
            State::Element { comma } => {
                json.push_str(if comma { ", " } else { "" });
                self.value(c, json)
            }
            State::Key { .. } if c == '}' => self.close(Open::Object, json),
            State::Key { .. } if matches!(c, ',' | ':' | '{' | '[' | ']') => GemmaStep::Bad,
            State::Key { comma } => {
                json.push_str(if comma { ", " } else { "" });
                self.key.clear();
                self.word.push(c);
                self.go(match c {
                    '<' => State::Quote { key: true },
                    '"' => State::Quoted { key: true, is_escaped: false },
                    _ => State::BareKey,
                })
            }
            State::Colon if c == ':' => {
                json.push_str(": ");
                self.go(State::Value)
            }
            State::Colon => GemmaStep::Bad,
            State::Next => match (c, self.open.last()) {
                (',', Some(Open::Object)) => self.go(State::Key { comma: true }),
                (',', Some(Open::Array)) => self.go(State::Element { comma: true }),
                ('}', _) => self.close(Open::Object, json),
                (']', _) => self.close(Open::Array, json),
                _ => GemmaStep::Bad,
            },
        }
    }

    fn go(&mut self, state: State) -> GemmaStep {
        self.state = state;
        GemmaStep::More
    }

    fn value(&mut self, c: char, json: &mut String) -> GemmaStep {
        match c {
            '{' | '[' if self.open.len() >= MAX_DEPTH => GemmaStep::Bad,
            '{' => {
                self.open.push(Open::Object);
                json.push('{');
                self.go(State::Key { comma: false })
            }
            '[' => {
                self.open.push(Open::Array);
                json.push('[');
                self.go(State::Element { comma: false })
            }
            '<' => {
                self.word.push(c);
                self.go(State::Quote { key: false })
            }
            '"' => {
                self.word.push(c);
                self.go(State::Quoted { key: false, is_escaped: false })
            }
            ',' | ':' | '}' | ']' => GemmaStep::Bad,
            c => {
                self.word.push(c);
                self.go(State::Bare)
            }
        }
    }

    fn quote(&mut self, c: char, key: bool, json: &mut String) -> GemmaStep {
        self.word.push(c);
        let [mark] = self.mark;
        if !mark.starts_with(&self.word) {
            return GemmaStep::Bad;
        }
        if self.word.len() < mark.len() {
            return GemmaStep::More;
        }
        self.word.clear();
        if key || !self.is_converted() {
            json.push('"');
        }
        self.go(State::Text { key })
    }

    fn text(&mut self, c: char, key: bool, json: &mut String) -> GemmaStep {
        let mut text = String::new();
        let end = self.finder.push(c, &mut text);
        if !key && self.is_converted() {
            self.word.push_str(&text);
            if end.is_none() {
                return GemmaStep::More;
            }
            let word = std::mem::take(&mut self.word);
            let is_json = serde_json::from_str::<serde_json::Value>(&word).is_ok();
            json.push_str(&if is_json { word.trim().to_owned() } else { quote_json(&word) });
            return self.value_over();
        }
        text.chars().for_each(|c| escape_json_char(c, json));
        if end.is_none() {
            return GemmaStep::More;
        }
        json.push('"');
        if key { self.go(State::Colon) } else { self.value_over() }
    }

    fn quoted(&mut self, c: char, key: bool, is_escaped: bool, json: &mut String) -> GemmaStep {
        if c != '"' || is_escaped {
            self.state = State::Quoted { key, is_escaped: c == '\\' && !is_escaped };
            return self.push_word(c);
        }
        self.word.push(c);
        let Ok(text) = serde_json::from_str::<String>(&self.word) else { return GemmaStep::Bad };
        self.word.clear();
        json.push_str(&quote_json(&text));
        if key { self.go(State::Colon) } else { self.value_over() }
    }

    fn bare_key(&mut self, c: char, json: &mut String) -> GemmaStep {
        match c {
            ':' => {
                self.key = self.word.trim_end().to_owned();
                json.push_str(&quote_json(&self.key));
                self.word.clear();
                self.state = State::Colon;
                self.step(c, json)
            }
            ',' | '{' | '}' | '[' | ']' => GemmaStep::Bad,
            c => self.push_word(c),
        }
    }

    fn bare(&mut self, c: char, json: &mut String) -> GemmaStep {
        if !matches!(c, ',' | '}' | ']') {
            return self.push_word(c);
        }
        let word = std::mem::take(&mut self.word);
        let word = word.trim_end();
        json.push_str(&match word.to_ascii_lowercase().as_str() {
            "true" | "false" => word.to_ascii_lowercase(),
            "null" | "none" | "nil" => "null".to_owned(),
            _ if serde_json::from_str::<serde_json::Number>(word).is_ok() => word.to_owned(),
            _ => quote_json(word),
        });
        match self.value_over() {
            GemmaStep::More => self.step(c, json),
            // The value is over before the character, which no bare word ends with.
            step => step,
        }
    }

    fn push_word(&mut self, c: char) -> GemmaStep {
        self.word.push(c);
        if self.word.len() <= MAX_WORD_LEN { GemmaStep::More } else { GemmaStep::Bad }
    }

    fn close(&mut self, kind: Open, json: &mut String) -> GemmaStep {
        if self.open.pop() != Some(kind) {
            return GemmaStep::Bad;
        }
        json.push(if kind == Open::Object { '}' } else { ']' });
        self.value_over()
    }

    fn value_over(&mut self) -> GemmaStep {
        if self.open.is_empty() {
            self.state = State::Over;
            return GemmaStep::Done;
        }
        self.go(State::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the JSON of an object, if it is one and the text ends with it.
    fn json_of(text: &str) -> Option<String> {
        let (mut literal, mut json) = (GemmaLiteral::new(&["<|\"|>"]), String::new());
        let mut last = GemmaStep::More;
        for c in text.chars() {
            last = literal.step(c, &mut json);
            if last == GemmaStep::Bad {
                return None;
            }
        }
        (last == GemmaStep::Done).then_some(json)
    }

    #[test]
    fn objects_become_json() {
        let table = [
            ("{}", Some("{}")),
            ("{a:<|\"|>b<|\"|>}", Some("{\"a\": \"b\"}")),
            ("{a:<|\"|>\"x\" \\ <|\n,}<|\"|>}", Some("{\"a\": \"\\\"x\\\" \\\\ <|\\n,}\"}")),
            (
                "{ a : 1 , b:-2.5e3,c:true,d: None }",
                Some("{\"a\": 1, \"b\": -2.5e3, \"c\": true, \"d\": null}"),
            ),
            // A comma before the end writes nothing.
            (
                "{a:[1,<|\"|>x<|\"|>,[],{}],b:{c:false,}}",
                Some("{\"a\": [1, \"x\", [], {}], \"b\": {\"c\": false}}"),
            ),
            ("{<|\"|>a b<|\"|>:in the hall}", Some("{\"a b\": \"in the hall\"}")),
            ("{\"a\":\"x, \\\"y\\\"\",b:1}", Some("{\"a\": \"x, \\\"y\\\"\", \"b\": 1}")),
            ("{a:\"\\\\\"}", Some("{\"a\": \"\\\\\"}")),
            ("{id:2024_01_05,v:+5}", Some("{\"id\": \"2024_01_05\", \"v\": \"+5\"}")),
            ("{a:\"\\x\"}", None),
            ("{a:1,,b:2}", None),
            ("{:a:1}", None),
            ("{a:1}}", None),
            ("{a:1]", None),
            ("{a}", None),
            ("{a:}", None),
            ("{a:<|x}", None),
            ("{a:1", None),
        ];
        for (text, json) in table {
            assert_eq!(json_of(text).as_deref(), json, "{text}");
            if let Some(json) = json {
                serde_json::from_str::<serde_json::Value>(json).unwrap();
            }
        }
    }
}
