//! Calls in Python.
//! - `[now(utc=True), get_weather(unit='c', days=3)]`: Llama 3.2, and other models. The answer must
//!   begin with the list, because brackets within a text are common.
//! - `<|tool_call_start|>[now(utc=True)]<|tool_call_end|>`: LFM 2, anywhere in the text.
//! - `<function_calls>`, a call a line, `</function_calls>`: OLMo 3, anywhere in the text.

use super::{
    super::scan::{Expected, Match, PythonLiteral, PythonStep, quote_json},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
};

/// Bytes of the longest name of a function or of an argument.
const MAX_NAME_LEN: usize = 256;

/// The frame of a format's calls.
struct PythonFormat {
    markers: &'static [&'static str],
    is_anywhere: bool,
    brackets: Brackets,
    /// The closing tag, which may be left out. Empty if the last bracket ends the block.
    end: &'static [&'static str],
}

/// The brackets around calls, and so what stands between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brackets {
    /// The marker is the opening bracket. A comma stands between calls.
    InMarker,
    /// A list follows the marker. A comma stands between calls.
    AfterMarker,
    /// No brackets. White space, with or without a comma, stands between calls.
    None,
}

const PYTHONIC: PythonFormat =
    PythonFormat { markers: &["["], is_anywhere: false, brackets: Brackets::InMarker, end: &[] };

const LFM2: PythonFormat = PythonFormat {
    markers: &["<|tool_call_start|>"],
    is_anywhere: true,
    brackets: Brackets::AfterMarker,
    end: &["<|tool_call_end|>"],
};

const OLMO3: PythonFormat = PythonFormat {
    markers: &["<function_calls>"],
    is_anywhere: true,
    brackets: Brackets::None,
    end: &["</function_calls>"],
};

struct PythonBlock<const SPECIAL_TOKENS: bool> {
    format: &'static PythonFormat,
    state: State,
    function: String,
    num_arguments: usize,
    has_call: bool,
}

#[derive(Default)]
enum State {
    /// The bracket of the list comes next.
    Open,
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
    /// After all calls. The closing tag comes next.
    End(Expected),
}

impl<const SPECIAL_TOKENS: bool> PythonBlock<SPECIAL_TOKENS> {
    fn parser(format: &'static PythonFormat) -> BlockParser<Self> {
        BlockParser::new(Self {
            format,
            state: State::default(),
            function: String::new(),
            num_arguments: 0,
            has_call: false,
        })
    }

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

    /// Ends the list.
    fn close_list(&mut self, calls: &mut Calls) -> Step {
        if self.format.end.is_empty() {
            return Step::Done;
        }
        calls.forget();
        self.go(State::End(Expected::new(self.format.end)))
    }

    fn begin_function(&mut self, c: char) -> Step {
        self.function = c.to_string();
        self.go(State::Function)
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

impl<const SPECIAL_TOKENS: bool> Block for PythonBlock<SPECIAL_TOKENS> {
    const SPECIAL_TOKENS: bool = SPECIAL_TOKENS;

    fn markers(&self) -> &'static [&'static str] {
        self.format.markers
    }

    fn is_anywhere(&self) -> bool {
        self.format.is_anywhere
    }

    fn open(&mut self, _marker: usize) {
        self.state = match self.format.brackets {
            Brackets::AfterMarker => State::Open,
            Brackets::InMarker | Brackets::None => State::Call,
        };
        self.has_call = false;
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        let is_long = |text: &String| text.len() > MAX_NAME_LEN;
        let has_brackets = self.format.brackets != Brackets::None;
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
            State::End(expected) => match expected.step(c) {
                Match::Partial => Step::More,
                Match::Whole(_) => Step::Done,
                Match::No => Step::Refused,
            },
            _ if c.is_whitespace() => Step::More,
            State::Open if c == '[' => self.go(State::Call),
            State::Call if c == ']' && self.has_call && has_brackets => self.close_list(calls),
            State::Call if is_name(c) && !c.is_numeric() => self.begin_function(c),
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
            State::AfterCall if c == ']' && has_brackets => self.close_list(calls),
            State::AfterCall if has_brackets => Step::Refused,
            State::AfterCall if is_name(c) && !c.is_numeric() => self.begin_function(c),
            State::AfterCall => {
                self.state = State::End(Expected::new(self.format.end));
                self.step(c, calls)
            }
            _ => Step::Refused,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::End(_))
    }
}

/// Returns a parser of a bare list.
pub(in super::super) fn pythonic() -> impl ToolParser {
    PythonBlock::<false>::parser(&PYTHONIC)
}

/// Returns a parser of LFM 2's calls. The tags are special tokens.
pub(in super::super) fn lfm2() -> impl ToolParser {
    PythonBlock::<true>::parser(&LFM2)
}

/// Returns a parser of OLMo 3's calls.
pub(in super::super) fn olmo3() -> impl ToolParser {
    PythonBlock::<false>::parser(&OLMO3)
}
