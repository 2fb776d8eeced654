//! Calls as functions with parameters, each between tags. Every value is a text.

use super::{
    super::scan::{Expected, MarkerFinder, Match},
    block::{Block, BlockParser, Step},
    calls::Calls,
    schema::{Tools, Types},
    tagged_values::TaggedValues,
};

/// The tags of a format.
pub(super) struct Tags {
    /// Those that open a block: the one around functions, and any other that begins a function.
    pub(super) openings: &'static [&'static str],
    /// The beginning of a function, which must follow the first opening.
    pub(super) first: &'static [&'static str],
    /// The beginning of a function, and the end of the block.
    pub(super) between: &'static [&'static str],
    /// The tags within a function, in the order of the constants below. The beginning of the next
    /// function ends it, too.
    pub(super) in_function: &'static [&'static str],
    /// The tags that end a value, if only because it lacks its closing tag: that one, the next
    /// parameter, and the end of the function.
    pub(super) value_ends: &'static [&'static str],
    /// Whether names have quotes.
    pub(super) has_quotes: bool,
    /// Whether a line break after the opening tag of a value and before the closing one is layout.
    pub(super) has_framed_values: bool,
}

impl Tags {
    /// Returns a name as it is written, without white space and quotes.
    fn name<'a>(&self, text: &'a str) -> &'a str {
        let text = text.trim();
        let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
        match self.has_quotes {
            true => within('"').or_else(|| within('\'')).unwrap_or(text).trim(),
            false => text,
        }
    }
}

const PARAMETER: usize = 0;
const FUNCTION_END: usize = 1;
const CALL_END: usize = 2;
const FUNCTION: usize = 3;
/// The closing tag of a value, after which the function goes on.
const VALUE_END: usize = 4;

/// The meanings of [`Tags::value_ends`].
const ENDS_OF_VALUES: [usize; 3] = [VALUE_END, PARAMETER, FUNCTION_END];

/// Bytes of the longest name of a function or of a parameter.
const MAX_NAME_LEN: usize = 256;

/// A block of functions.
pub(super) struct FunctionBlock {
    tags: &'static Tags,
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

impl FunctionBlock {
    /// Returns a parser of calls with these tags.
    pub(super) fn parser(tags: &'static Tags, tools: &Tools) -> BlockParser<Self> {
        let (tools, state) = (tools.clone(), State::Name(String::new()));
        BlockParser::new(Self { tags, tools, state, values: None, has_call: false })
    }

    /// Handles a tag within a function, by its place in [`Tags::in_function`].
    fn tag(&mut self, tag: usize, calls: &mut Calls) -> Step {
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
                        calls.hold(self.tags.in_function[FUNCTION]);
                        State::Name(String::new())
                    }
                    _ => State::Between(Expected::new(self.tags.between)),
                }
            }
            _ => State::InFunction(Expected::new(self.tags.in_function)),
        };
        if tag == CALL_END { Step::Done } else { Step::More }
    }

    fn name(&mut self, name: &str) -> Step {
        let name = self.tags.name(name);
        if name.is_empty() {
            return Step::Refused;
        }
        let framed = self.tags.has_framed_values;
        self.values = Some(TaggedValues::new(&self.tools, name, Types::STRING, framed));
        self.state = State::InFunction(Expected::new(self.tags.in_function));
        Step::More
    }
}

impl Block for FunctionBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        self.tags.openings
    }

    fn open(&mut self, marker: usize) {
        self.has_call = false;
        self.values = None;
        self.state = match marker {
            0 => State::Between(Expected::new(self.tags.first)),
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
                values.begin(self.tags.name(&key), calls);
                self.state = State::Value(MarkerFinder::new(self.tags.value_ends));
            }
            State::Name(text) | State::Key(text) => {
                text.push(c);
                if text.len() > MAX_NAME_LEN || c == '<' || c == '\n' {
                    return Step::Refused;
                }
            }
            State::InFunction(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(tag) => return self.tag(tag, calls),
                Match::No => return Step::Refused,
            },
            State::Value(finder) => {
                let mut text = String::new();
                let tag = finder.push(c, &mut text);
                let Some(values) = &mut self.values else { return Step::Refused };
                values.push(&text, calls);
                if let Some(tag) = tag {
                    values.end(calls);
                    return self.tag(ENDS_OF_VALUES[tag], calls);
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
