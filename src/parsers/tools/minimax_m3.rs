//! MiniMax-M3, whose arguments are elements that may hold others. A namespace is before every tag:
//! ```text
//! ]<]minimax[>[<tool_call>
//! ]<]minimax[>[<invoke name="now">]<]minimax[>[<utc>true]<]minimax[>[</utc>]<]minimax[>[</invoke>
//! ]<]minimax[>[</tool_call>
//! ```
//! The arguments of a call come all at once, because a name that is repeated makes a list of its
//! first value.

use super::{
    super::scan::{Expected, MarkerFinder, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    elements,
    parser::ToolParser,
    schema::Tools,
};

const CALLS: &str = "]<]minimax[>[<tool_call>";
const CALLS_END: &str = "]<]minimax[>[</tool_call>";
const CALL: &str = "]<]minimax[>[<invoke name=";
const CALL_END: &str = "]<]minimax[>[</invoke>";

/// Bytes of the longest name of a function.
const MAX_NAME_LEN: usize = 256;

struct ElementBlock {
    tools: Tools,
    state: State,
    has_call: bool,
}

enum State {
    /// A call, or the end of the block, comes next.
    Between(Expected),
    Name(String),
    /// The name, the arguments, and the tag that ends the call.
    Arguments {
        name: String,
        text: String,
        end: MarkerFinder,
    },
}

impl ElementBlock {
    fn between(has_call: bool) -> State {
        State::Between(if has_call {
            Expected::new(&[CALL, CALLS_END])
        } else {
            Expected::new(&[CALL])
        })
    }
}

impl Block for ElementBlock {
    const SPECIAL_TOKENS: bool = false;

    fn markers(&self) -> &'static [&'static str] {
        &[CALLS]
    }

    fn open(&mut self, _marker: usize) {
        self.has_call = false;
        self.state = Self::between(false);
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Between(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(0) => self.state = State::Name(String::new()),
                Match::Whole(_) => return Step::Done,
                Match::No => return Step::Refused,
            },
            State::Name(text) if c == '>' => {
                let text = text.trim();
                let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
                let name = within('"').or_else(|| within('\'')).unwrap_or(text).trim().to_owned();
                if name.is_empty() {
                    return Step::Refused;
                }
                calls.start(name.clone(), None);
                let end = MarkerFinder::new(&[CALL_END]);
                self.state = State::Arguments { name, text: String::new(), end };
            }
            State::Name(text) => {
                text.push(c);
                if text.len() > MAX_NAME_LEN || c == '<' || c == '\n' {
                    return Step::Refused;
                }
            }
            State::Arguments { name, text, end } => {
                if end.push(c, text).is_some() {
                    let parameters = self.tools.parameters(name);
                    let (json, is_whole) = elements::arguments(text, parameters);
                    calls.arguments(&json);
                    if !is_whole {
                        return Step::Refused;
                    }
                    calls.arguments("}");
                    calls.end();
                    self.has_call = true;
                    self.state = Self::between(true);
                }
            }
        }
        Step::More
    }

    fn is_done(&self) -> bool {
        self.has_call && matches!(self.state, State::Between(_))
    }
}

pub(in super::super) fn minimax_m3(tools: &Tools) -> impl ToolParser + use<> {
    let (tools, state) = (tools.clone(), ElementBlock::between(false));
    BlockParser::new(ElementBlock { tools, state, has_call: false })
}
