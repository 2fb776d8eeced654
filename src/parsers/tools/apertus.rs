//! `<|tools_prefix|>[{"now": {"utc": true}}]<|tools_suffix|>`: Apertus. Each object of the list has
//! one key, the name, whose value is the arguments.

use super::{
    super::scan::{Expected, JsonScanner, JsonStep, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
    section::JsonArguments,
};

const PREFIX: &str = "<|tools_prefix|>";
const SUFFIX: &str = "<|tools_suffix|>";

/// Bytes of the longest name, with its quotes.
const MAX_NAME_LEN: usize = 256;

struct ApertusBlock {
    state: State,
}

enum State {
    /// The bracket of the list comes next.
    Open,
    /// The brace of an object comes next.
    Object,
    /// The name comes next.
    BeforeName,
    /// The text of the name, and its quotes.
    Name(String, JsonScanner),
    /// The colon after the name comes next.
    Colon(String),
    Arguments(String, JsonArguments),
    /// The arguments are complete, and the brace of the object comes next.
    Close,
    /// A comma or the bracket of the list comes next.
    Next,
    /// The suffix comes next.
    End(Expected),
}

impl ApertusBlock {
    fn go(&mut self, state: State) -> Step {
        self.state = state;
        Step::More
    }

    /// Takes a character of the name.
    fn name(&mut self, c: char) -> Step {
        let State::Name(text, scanner) = &mut self.state else { return Step::Refused };
        text.push(c);
        match scanner.step(c) {
            _ if text.len() > MAX_NAME_LEN => Step::Refused,
            JsonStep::More => Step::More,
            JsonStep::Done => match serde_json::from_str::<String>(text) {
                Ok(name) if !name.trim().is_empty() => self.go(State::Colon(name)),
                _ => Step::Refused,
            },
            JsonStep::Control | JsonStep::DoneBefore | JsonStep::Bad => Step::Refused,
        }
    }
}

impl Block for ApertusBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        &[PREFIX]
    }

    fn open(&mut self, _marker: usize) {
        self.state = State::Open;
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Name(..) => self.name(c),
            State::Arguments(name, arguments) => match arguments.step(c, name, None, calls) {
                Step::Done => self.go(State::Close),
                step => step,
            },
            State::End(expected) => match expected.step(c) {
                Match::Partial => Step::More,
                Match::Whole(_) => Step::Done,
                Match::No => Step::Refused,
            },
            _ if c.is_whitespace() => Step::More,
            State::Open if c == '[' => self.go(State::Object),
            State::Object if c == '{' => self.go(State::BeforeName),
            State::BeforeName if c == '"' => {
                self.state = State::Name(String::new(), JsonScanner::default());
                self.name(c)
            }
            State::Colon(name) if c == ':' => {
                let name = std::mem::take(name);
                self.go(State::Arguments(name, JsonArguments::default()))
            }
            State::Close if c == '}' => {
                calls.forget();
                self.go(State::Next)
            }
            State::Next if c == ',' => self.go(State::Object),
            State::Next if c == ']' => {
                calls.forget();
                self.go(State::End(Expected::new(&[SUFFIX])))
            }
            _ => Step::Refused,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Close | State::Next | State::End(_))
    }
}

/// Returns a parser of this format. The markers are special tokens.
pub(in super::super) fn apertus() -> impl ToolParser {
    BlockParser::new(ApertusBlock { state: State::Open })
}
