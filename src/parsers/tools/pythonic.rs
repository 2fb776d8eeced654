//! `[now(utc=True), get_weather(unit='c', days=3)]`: Llama 3.2, and other models that call in
//! Python.
//!
//! The answer must begin with the list, because brackets within a text are common.

use super::{
    super::scan::{PythonLiteral, PythonStep, quote_json},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
};

/// Bytes of the longest name of a function or of an argument.
const MAX_NAME_LEN: usize = 256;

#[derive(Default)]
struct PythonBlock {
    state: State,
    function: String,
    num_arguments: usize,
    has_call: bool,
}

#[derive(Default)]
enum State {
    /// A call comes next, or the end of the list after a call.
    #[default]
    Call,
    Function,
    /// An argument, or the end of the call, comes next.
    Argument,
    Key(String),
    /// White space after the name of an argument.
    AfterKey(String),
    /// The equals sign has been read. A second one would make it a comparison.
    Equals(String),
    Value(PythonLiteral),
    /// After an argument.
    AfterArgument,
    /// After a call.
    AfterCall,
}

impl PythonBlock {
    /// Starts the call unless it has started. From here it is certain that it is one.
    fn start(&mut self, calls: &mut Calls) {
        if !calls.is_open() {
            calls.start(std::mem::take(&mut self.function), None);
            calls.arguments("{");
        }
    }

    fn close(&mut self, calls: &mut Calls) -> Step {
        self.start(calls);
        calls.arguments("}");
        calls.end();
        self.has_call = true;
        self.go(State::AfterCall)
    }

    fn go(&mut self, state: State) -> Step {
        self.state = state;
        Step::More
    }

    fn begin_value(&mut self, c: char, key: &str, calls: &mut Calls) -> Step {
        let mut literal = PythonLiteral::default();
        let mut json = String::new();
        // An argument whose value is malformed from the first character is not shown at all.
        if literal.step(c, &mut json) == PythonStep::Bad {
            return Step::Refused;
        }
        self.start(calls);
        calls.arguments(if self.num_arguments == 0 { "" } else { ", " });
        calls.arguments(&quote_json(key));
        calls.arguments(": ");
        calls.arguments(&json);
        self.num_arguments += 1;
        self.go(State::Value(literal))
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Block for PythonBlock {
    const SPECIAL_TOKENS: bool = false;

    fn markers(&self) -> &'static [&'static str] {
        &["["]
    }

    fn is_anywhere(&self) -> bool {
        false
    }

    fn open(&mut self, _marker: usize) {
        self.state = State::Call;
        self.has_call = false;
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        let is_long = |text: &String| text.len() > MAX_NAME_LEN;
        match &mut self.state {
            State::Value(literal) => {
                let mut json = String::new();
                let step = literal.step(c, &mut json);
                calls.arguments(&json);
                match step {
                    PythonStep::More => Step::More,
                    PythonStep::Done => self.go(State::AfterArgument),
                    PythonStep::DoneBefore => {
                        self.state = State::AfterArgument;
                        self.step(c, calls)
                    }
                    PythonStep::Bad => Step::Refused,
                }
            }
            State::Function if is_name(c) || matches!(c, '.' | '-') => {
                self.function.push(c);
                if is_long(&self.function) { Step::Refused } else { Step::More }
            }
            State::Function if c == '(' => {
                self.num_arguments = 0;
                self.go(State::Argument)
            }
            State::Key(key) if is_name(c) => {
                key.push(c);
                if is_long(key) { Step::Refused } else { Step::More }
            }
            State::Function => Step::Refused,
            State::Key(key) if c.is_whitespace() => {
                let key = std::mem::take(key);
                self.go(State::AfterKey(key))
            }
            _ if c.is_whitespace() => Step::More,
            State::Call if c == ']' && self.has_call => Step::Done,
            State::Call if is_name(c) && !c.is_numeric() => {
                self.function = c.to_string();
                self.go(State::Function)
            }
            State::Argument if c == ')' => self.close(calls),
            State::Argument if is_name(c) && !c.is_numeric() => self.go(State::Key(c.to_string())),
            State::Key(key) | State::AfterKey(key) if c == '=' => {
                let key = std::mem::take(key);
                self.go(State::Equals(key))
            }
            State::Equals(key) => {
                let key = std::mem::take(key);
                self.begin_value(c, &key, calls)
            }
            State::AfterArgument if c == ',' => self.go(State::Argument),
            State::AfterArgument if c == ')' => self.close(calls),
            State::AfterCall if c == ',' => self.go(State::Call),
            State::AfterCall if c == ']' => Step::Done,
            _ => Step::Refused,
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}

pub(in super::super) fn pythonic() -> impl ToolParser {
    BlockParser::new(PythonBlock::default())
}
