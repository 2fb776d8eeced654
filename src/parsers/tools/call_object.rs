//! A call as a JSON object: `{"name": "now", "arguments": {"utc": true}}`.

use serde_json::Value;

use super::{
    super::scan::{JsonScanner, JsonStep, escape_json_char, quote_json},
    block::Step,
    calls::Calls,
};

/// Bytes of the longest name.
const MAX_NAME_LEN: usize = 256;

/// Bytes of the longest key of a call, with its quotes.
const MAX_BARE_KEY_LEN: usize = 12;

/// The strictness with which an object is accepted as a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rigour {
    /// After a marker of calls: arguments may be missing, or be any text.
    Loose,
    /// After a marker of calls: there are arguments, and they are an object or a list.
    Strict,
    /// Without a marker: as strict, and other keys are not allowed, because it may be JSON of
    /// another kind.
    Bare,
}

/// Reads one object with its keys in any order, and writes the arguments as they arrive.
#[derive(Debug)]
pub(super) struct CallObject {
    rigour: Rigour,
    state: State,
    scanner: JsonScanner,
    /// The current key or value, unless it is written at once.
    text: String,
    name: Option<String>,
    /// Arguments that arrived before the name.
    early: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A key comes next, or the end if no key came yet.
    Key {
        first: bool,
    },
    InKey,
    Colon(Field),
    Value(Field),
    InValue(Field),
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Other,
}

impl CallObject {
    /// Returns a reader of an object whose brace comes next.
    pub(super) fn new(rigour: Rigour) -> Self {
        Self {
            rigour,
            state: State::Open,
            scanner: JsonScanner::default(),
            text: String::new(),
            name: None,
            early: None,
        }
    }

    /// Returns a reader of an object whose brace has been read.
    pub(super) fn opened(rigour: Rigour) -> Self {
        Self { state: State::Key { first: true }, ..Self::new(rigour) }
    }

    pub(super) fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match self.state {
            State::InKey | State::InValue(_) => self.scan(c, calls),
            _ if matches!(c, ' ' | '\t' | '\n' | '\r') => Step::More,
            State::Open if c == '{' => self.go(State::Key { first: true }),
            State::Key { first: true } | State::Next if c == '}' => self.close(calls),
            State::Next if c == ',' => self.go(State::Key { first: false }),
            State::Key { .. } if c == '"' => {
                self.state = State::InKey;
                self.scan(c, calls)
            }
            State::Colon(field) if c == ':' => self.go(State::Value(field)),
            // An object has one key for arguments.
            State::Value(Field::Arguments) if calls.is_open() || self.early.is_some() => {
                Step::Refused
            }
            State::Value(field) => {
                self.state = State::InValue(field);
                self.begin_arguments(c, field, calls);
                self.scan(c, calls)
            }
            State::Open | State::Key { .. } | State::Colon(_) | State::Next => Step::Refused,
        }
    }

    fn go(&mut self, state: State) -> Step {
        self.state = state;
        Step::More
    }

    /// Begins the arguments. If the name is known, an object or a list is written as it arrives.
    fn begin_arguments(&mut self, c: char, field: Field, calls: &mut Calls) {
        if field == Field::Arguments
            && matches!(c, '{' | '[')
            && let Some(name) = &self.name
        {
            calls.start(name.clone(), None);
        }
    }

    /// Takes a character of a key or a value.
    fn scan(&mut self, c: char, calls: &mut Calls) -> Step {
        let step = self.scanner.step(c);
        match step {
            JsonStep::Bad => return Step::Refused,
            JsonStep::Control => escape_json_char(c, &mut self.text),
            JsonStep::More | JsonStep::Done => self.text.push(c),
            JsonStep::DoneBefore => {}
        }
        let streams = calls.is_open() && self.state == State::InValue(Field::Arguments);
        if streams {
            calls.arguments(&self.text);
            self.text.clear();
        }
        if matches!(step, JsonStep::More | JsonStep::Control) {
            let is_foreign = self.state == State::InKey
                && self.rigour == Rigour::Bare
                && self.text.len() > MAX_BARE_KEY_LEN;
            return if is_foreign { Step::Refused } else { Step::More };
        }
        self.scanner = JsonScanner::default();
        let text = std::mem::take(&mut self.text);
        let state = self.state;
        match state {
            State::InKey => return self.key(&text),
            State::InValue(Field::Arguments) if streams => {}
            State::InValue(field) if self.value(field, text, calls).is_none() => {
                return Step::Refused;
            }
            _ => {}
        }
        self.state = State::Next;
        // The character that ends a number belongs to the object.
        if step == JsonStep::DoneBefore { self.step(c, calls) } else { Step::More }
    }

    fn key(&mut self, text: &str) -> Step {
        let field = match text {
            "\"name\"" => Field::Name,
            "\"arguments\"" | "\"parameters\"" => Field::Arguments,
            "\"id\"" | "\"type\"" => Field::Other,
            _ if self.rigour == Rigour::Bare => return Step::Refused,
            // Cohere's.
            "\"tool_name\"" => Field::Name,
            // Inkling's.
            "\"args\"" => Field::Arguments,
            _ => Field::Other,
        };
        self.go(State::Colon(field))
    }

    /// Takes a value that was not written as it arrived. Returns `None` if no call has this value.
    fn value(&mut self, field: Field, text: String, calls: &mut Calls) -> Option<()> {
        match field {
            Field::Other => Some(()),
            Field::Name if self.name.is_some() => None,
            Field::Name => {
                let name: String = serde_json::from_str(&text).ok()?;
                let fits = !name.trim().is_empty() && name.len() <= MAX_NAME_LEN;
                self.name = fits.then_some(name);
                let name = self.name.clone()?;
                if let Some(arguments) = &self.early {
                    calls.start(name, None);
                    calls.arguments(arguments);
                }
                Some(())
            }
            Field::Arguments => {
                let arguments = plain_arguments(text, self.rigour)?;
                if let Some(name) = &self.name {
                    calls.start(name.clone(), None);
                    calls.arguments(&arguments);
                }
                self.early = Some(arguments);
                Some(())
            }
        }
    }

    /// Ends the text within the object. Starts the call if its name has arrived and it has not
    /// started.
    pub(super) fn cut(&mut self, calls: &mut Calls) {
        if let Some(name) = self.name.take().filter(|_| !calls.is_open()) {
            calls.start(name, None);
        }
    }

    fn close(&mut self, calls: &mut Calls) -> Step {
        if !calls.is_open() {
            match self.name.take() {
                Some(name) if self.rigour == Rigour::Loose => {
                    calls.start(name, None);
                    calls.arguments("{}");
                }
                _ => return Step::Refused,
            }
        }
        calls.end();
        Step::Done
    }
}

/// Returns arguments that a client can read: not written into a string, and not null.
fn plain_arguments(text: String, rigour: Rigour) -> Option<String> {
    if text == "null" {
        return Some("{}".to_owned());
    }
    if text.starts_with(['{', '[']) {
        return Some(text);
    }
    let loose = rigour == Rigour::Loose;
    let inner = serde_json::from_str::<String>(&text).ok()?;
    match serde_json::from_str::<Value>(&inner) {
        Ok(Value::Object(_) | Value::Array(_)) => Some(inner.trim().to_owned()),
        _ if inner.trim().is_empty() => Some("{}".to_owned()),
        _ => loose.then(|| quote_json(&inner)),
    }
}
