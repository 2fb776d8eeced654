//! Gemma 4 and FunctionGemma, whose arguments are not JSON:
//! ```text
//! <|tool_call>call:weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>
//! <start_function_call>call:weather{city:<escape>Paris<escape>,days:3}<end_function_call>
//! ```
//! A text between marks stays a text, also one of digits: the marks say so. FunctionGemma's are
//! JSON where they can be, as in vLLM, unless the tool declares a text. Arguments without marks
//! count, too, which vLLM drops.

use super::{
    super::scan::{Expected, GemmaLiteral, GemmaStep, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
    schema::{Tools, Types},
};

/// The markers of a format.
struct GemmaFormat {
    /// Opens a call.
    call: &'static [&'static str],
    /// Ends a call.
    call_end: &'static [&'static str],
    /// Stands at both ends of a text.
    mark: &'static [&'static str; 1],
}

const GEMMA4: GemmaFormat =
    GemmaFormat { call: &["<|tool_call>"], call_end: &["<tool_call|>"], mark: &["<|\"|>"] };

const FUNCTION_GEMMA: GemmaFormat = GemmaFormat {
    call: &["<start_function_call>"],
    call_end: &["<end_function_call>"],
    mark: &["<escape>"],
};

const BEFORE_NAME: &[&str] = &["call:"];

/// Bytes of the longest name of a function.
const MAX_NAME_LEN: usize = 256;

struct GemmaBlock {
    format: &'static GemmaFormat,
    /// The tools of the request, if texts may be JSON.
    tools: Option<Tools>,
    state: State,
}

enum State {
    /// The word before the name comes next.
    Begin(Expected),
    Name(String),
    Arguments(GemmaLiteral),
    /// The call is complete, and its end marker comes next.
    End(Expected),
}

impl State {
    fn begin() -> Self {
        Self::Begin(Expected::new(BEFORE_NAME))
    }
}

impl GemmaBlock {
    fn parser(format: &'static GemmaFormat, tools: Option<Tools>) -> BlockParser<Self> {
        BlockParser::new(Self { format, tools, state: State::begin() })
    }

    /// Returns a reader of the arguments of the function `name`.
    fn literal(&self, name: &str) -> GemmaLiteral {
        let Some(tools) = &self.tools else { return GemmaLiteral::new(self.format.mark) };
        let schema = tools.parameters(name).and_then(|schema| schema.get("properties"));
        let parameters = schema.and_then(|schema| schema.as_object()).into_iter().flatten();
        let is_text = |parameter: &&String| tools.types(name, parameter) == Some(Types::STRING);
        let texts = parameters.map(|(parameter, _)| parameter).filter(is_text).cloned();
        GemmaLiteral::converting(self.format.mark, texts.collect())
    }

    fn arguments(&mut self, c: char, calls: &mut Calls) -> Step {
        let State::Arguments(literal) = &mut self.state else { return Step::Refused };
        let mut json = String::new();
        let step = literal.step(c, &mut json);
        calls.arguments(&json);
        match step {
            GemmaStep::More => Step::More,
            GemmaStep::Bad => Step::Refused,
            GemmaStep::Done => {
                calls.end();
                self.state = State::End(Expected::new(self.format.call_end));
                Step::More
            }
        }
    }
}

impl Block for GemmaBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        self.format.call
    }

    fn open(&mut self, _marker: usize) {
        self.state = State::begin();
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Begin(expected) => match expected.step(c) {
                Match::Partial => Step::More,
                Match::No => Step::Refused,
                Match::Whole(_) => {
                    self.state = State::Name(String::new());
                    Step::More
                }
            },
            State::Name(name) if c == '{' => {
                let word = name.trim().to_owned();
                if word.is_empty() {
                    return Step::Refused;
                }
                let literal = self.literal(&word);
                calls.start(word, None);
                self.state = State::Arguments(literal);
                self.arguments(c, calls)
            }
            State::Name(name) => {
                name.push(c);
                let is_name = !c.is_control() && !matches!(c, '<' | '}');
                if is_name && name.len() <= MAX_NAME_LEN { Step::More } else { Step::Refused }
            }
            State::Arguments(_) => self.arguments(c, calls),
            State::End(expected) => match expected.step(c) {
                Match::Partial => Step::More,
                Match::Whole(_) => Step::Done,
                Match::No => Step::Refused,
            },
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::End(_))
    }
}

pub(in super::super) fn gemma4() -> impl ToolParser {
    GemmaBlock::parser(&GEMMA4, None)
}

pub(in super::super) fn functiongemma(tools: &Tools) -> impl ToolParser + use<> {
    GemmaBlock::parser(&FUNCTION_GEMMA, Some(tools.clone()))
}
