//! Qwen3-Coder and later models. Every value is a text between tags:
//! ```text
//! <tool_call>
//! <function=now>
//! <parameter=utc>
//! true
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//! Models may leave out the outer tag and closing tags.

use super::{
    super::scan::{Expected, MarkerFinder, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
    schema::{Tools, Types},
    tagged_values::TaggedValues,
};

const CALL: &str = "<tool_call>";
const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const FUNCTION_END: &str = "</function>";
const CALL_END: &str = "</tool_call>";

/// The tags within a function. The beginning of the next one ends it, too.
const IN_FUNCTION: &[&str] = &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION];
/// The tags that end a value, if only because it lacks its closing tag.
const VALUE_ENDS: &[&str] = &["</parameter>", PARAMETER, FUNCTION_END];

/// Bytes of the longest name of a function or of a parameter.
const MAX_NAME_LEN: usize = 256;

struct FunctionBlock {
    tools: Tools,
    state: State,
    values: Option<TaggedValues>,
    has_call: bool,
}

enum State {
    /// A function, or the end of the block, comes next.
    Between(Expected),
    Name(String),
    /// A parameter, or the end of the function, comes next.
    InFunction(Expected),
    Key(String),
    Value(MarkerFinder),
}

const BETWEEN: &[&str] = &[FUNCTION, CALL_END];

impl FunctionBlock {
    /// Handles a tag within a function.
    fn tag(&mut self, tag: &str, calls: &mut Calls) -> Step {
        let Some(values) = &mut self.values else { return Step::Refused };
        if !calls.is_open() {
            values.start(calls);
        }
        self.state = match tag {
            PARAMETER => State::Key(String::new()),
            FUNCTION_END | CALL_END | FUNCTION => {
                values.close(calls);
                self.values = None;
                self.has_call = true;
                match tag {
                    FUNCTION => {
                        calls.hold(tag);
                        State::Name(String::new())
                    }
                    _ => State::Between(Expected::new(BETWEEN)),
                }
            }
            _ => State::InFunction(Expected::new(IN_FUNCTION)),
        };
        if tag == CALL_END { Step::Done } else { Step::More }
    }

    fn name(&mut self, name: &str) -> Step {
        let name = name.trim();
        if name.is_empty() {
            return Step::Refused;
        }
        self.values = Some(TaggedValues::new(&self.tools, name, Types::STRING, true));
        self.state = State::InFunction(Expected::new(IN_FUNCTION));
        Step::More
    }
}

impl Block for FunctionBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        &[CALL, FUNCTION]
    }

    fn open(&mut self, marker: usize) {
        self.has_call = false;
        self.values = None;
        self.state = match marker {
            0 => State::Between(Expected::new(&[FUNCTION])),
            _ => State::Name(String::new()),
        };
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Between(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(0) => self.state = State::Name(String::new()),
                Match::Whole(_) => return Step::Done,
                Match::No => return Step::Refused,
            },
            State::Name(name) if c == '>' => {
                let name = std::mem::take(name);
                return self.name(&name);
            }
            State::Key(key) if c == '>' => {
                let key = std::mem::take(key);
                let Some(values) = &mut self.values else { return Step::Refused };
                values.begin(key.trim(), calls);
                self.state = State::Value(MarkerFinder::new(VALUE_ENDS));
            }
            State::Name(text) | State::Key(text) => {
                text.push(c);
                if text.len() > MAX_NAME_LEN || c == '<' || c == '\n' {
                    return Step::Refused;
                }
            }
            State::InFunction(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(tag) => return self.tag(IN_FUNCTION[tag], calls),
                Match::No => return Step::Refused,
            },
            State::Value(finder) => {
                let mut text = String::new();
                let tag = finder.push(c, &mut text);
                let Some(values) = &mut self.values else { return Step::Refused };
                values.push(&text, calls);
                if let Some(tag) = tag {
                    values.end(calls);
                    return self.tag(VALUE_ENDS[tag], calls);
                }
            }
        }
        Step::More
    }

    fn stop(&mut self, calls: &mut Calls) {
        // The parameter before it is complete.
        if matches!(self.state, State::InFunction(_)) && calls.is_open() {
            self.tag(FUNCTION_END, calls);
        }
    }

    fn is_done(&self) -> bool {
        self.has_call && matches!(self.state, State::Between(_))
    }
}

pub(in super::super) fn qwen3_coder(tools: &Tools) -> impl ToolParser + use<> {
    BlockParser::new(FunctionBlock {
        tools: tools.clone(),
        state: State::Name(String::new()),
        values: None,
        has_call: false,
    })
}
