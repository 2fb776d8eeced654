//! GLM 4.5 to 4.7. Every value is a text between tags: strings as they are, and all other values as
//! JSON:
//! ```text
//! <tool_call>now
//! <arg_key>utc</arg_key>
//! <arg_value>true</arg_value>
//! </tool_call>
//! ```

use super::{
    super::scan::{Expected, MarkerFinder, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    parser::ToolParser,
    schema::{Tools, Types},
    tagged_values::TaggedValues,
};

const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

const IN_CALL: &[&str] = &[KEY, CALL_END];

/// Bytes of the longest name of a function or of an argument.
const MAX_NAME_LEN: usize = 256;

struct ArgumentBlock {
    tools: Tools,
    state: State,
    values: Option<TaggedValues>,
}

enum State {
    /// The name, and the tag that ends it.
    Name {
        name: String,
        tag: MarkerFinder,
    },
    /// An argument, or the end of the call, comes next.
    InCall(Expected),
    Key(String),
    /// The tag before a value comes next.
    BeforeValue {
        key: String,
        tag: Expected,
    },
    Value(MarkerFinder),
}

impl State {
    fn name() -> Self {
        Self::Name { name: String::new(), tag: MarkerFinder::new(IN_CALL) }
    }
}

impl ArgumentBlock {
    /// Handles a tag within a call.
    fn tag(&mut self, tag: &str, calls: &mut Calls) -> Step {
        let Some(values) = &mut self.values else { return Step::Refused };
        if !calls.is_open() {
            values.start(calls);
        }
        if tag == CALL_END {
            values.close(calls);
            return Step::Done;
        }
        self.state = State::Key(String::new());
        Step::More
    }
}

impl Block for ArgumentBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        &[CALL]
    }

    fn open(&mut self, _marker: usize) {
        self.values = None;
        self.state = State::name();
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Name { name, tag } => {
                let tag = tag.push(c, name);
                let word = name.trim();
                let is_name = !word.contains(['<', '{', '\n']) && name.len() <= MAX_NAME_LEN;
                if !is_name || tag.is_some() && word.is_empty() {
                    return Step::Refused;
                }
                if let Some(tag) = tag {
                    let values = TaggedValues::new(&self.tools, word, Types::ANY, false);
                    self.values = Some(values);
                    return self.tag(IN_CALL[tag], calls);
                }
            }
            State::InCall(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(tag) => return self.tag(IN_CALL[tag], calls),
                Match::No => return Step::Refused,
            },
            State::Key(key) => {
                key.push(c);
                if let Some(whole) = key.strip_suffix(KEY_END) {
                    let (key, tag) = (whole.trim().to_owned(), Expected::new(&[VALUE]));
                    self.state = State::BeforeValue { key, tag };
                } else if key.len() > MAX_NAME_LEN {
                    return Step::Refused;
                }
            }
            State::BeforeValue { key, tag } => match tag.step(c) {
                Match::Partial => {}
                Match::Whole(_) => {
                    let Some(values) = &mut self.values else { return Step::Refused };
                    values.begin(key, calls);
                    self.state = State::Value(MarkerFinder::new(&[VALUE_END]));
                }
                Match::No => return Step::Refused,
            },
            State::Value(finder) => {
                let mut text = String::new();
                let end = finder.push(c, &mut text);
                let Some(values) = &mut self.values else { return Step::Refused };
                values.push(&text, calls);
                if end.is_some() {
                    values.end(calls);
                    self.state = State::InCall(Expected::new(IN_CALL));
                }
            }
        }
        Step::More
    }

    fn is_done(&self) -> bool {
        false
    }
}

pub(in super::super) fn glm45(tools: &Tools) -> impl ToolParser + use<> {
    BlockParser::new(ArgumentBlock { tools: tools.clone(), state: State::name(), values: None })
}
