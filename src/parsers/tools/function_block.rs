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
    /// Those that open a block: any around functions, and perhaps one that begins a function.
    pub(super) openings: &'static [&'static str],
    /// The beginning of a function, which must follow a tag around functions, and layout.
    pub(super) first: &'static [&'static str],
    /// The beginning of a function, the end of the block, and layout.
    pub(super) between: &'static [&'static str],
    /// The tags within a function, in the order of the constants below. The beginning of the next
    /// function ends it, too.
    pub(super) in_function: &'static [&'static str],
    /// The tags that end a value, if only because it lacks its closing tag: that one, the end of
    /// the function, and perhaps the next parameter.
    pub(super) value_ends: &'static [&'static str],
    /// The end of a tag with a name.
    pub(super) name_end: &'static str,
    /// The form of names.
    pub(super) names: Names,
    /// Whether a line break after the opening tag of a value and before the closing one is layout.
    pub(super) has_framed_values: bool,
}

/// The form of names in their tags.
pub(super) enum Names {
    /// The rest of the tag is the name.
    Bare,
    /// As `Bare`, in quotes.
    Quoted,
    /// The name is an attribute of the tag.
    Attributes(Attributes),
    /// The name is the attribute `name`. A function's name may stand twice, around a dot.
    Doubled {
        /// Whether values are text where the tools say so. All others are JSON, or else text.
        are_typed: bool,
    },
}

/// The source of a value's type.
enum Kind {
    /// The tools.
    Tools,
    /// The value's tag.
    Tag(Types),
    /// The value itself, by the rule of [`Names::Doubled`].
    Value { are_typed: bool },
}

/// The attributes of a format's tags, as in `name="days" string="false"`.
pub(super) struct Attributes {
    /// The name of a function.
    pub(super) function: &'static str,
    /// The name of a parameter.
    pub(super) parameter: &'static str,
    /// The kind of a value, and the kind that is text. Values of all other kinds are JSON.
    pub(super) kind: [&'static str; 2],
    /// Whether a value without a kind is text, and not perhaps JSON.
    pub(super) is_text: bool,
}

impl Tags {
    /// Returns the name of a function, by the text after the beginning of its tag.
    fn function(&self, text: &str, tools: &Tools) -> Option<String> {
        let name = match &self.names {
            Names::Bare => text.trim().to_owned(),
            Names::Quoted => without_quotes(text).to_owned(),
            Names::Attributes(attributes) => attribute(text, attributes.function)?,
            Names::Doubled { .. } => undoubled(attribute(text, NAME)?, tools),
        };
        (!name.trim().is_empty()).then_some(name)
    }

    /// Returns the name of a parameter, and the source of its value's type.
    fn parameter(&self, text: &str) -> Option<(String, Kind)> {
        let attributes = match &self.names {
            Names::Bare => return Some((text.trim().to_owned(), Kind::Tools)),
            Names::Quoted => return Some((without_quotes(text).to_owned(), Kind::Tools)),
            Names::Attributes(attributes) => attributes,
            Names::Doubled { are_typed } => {
                return Some((attribute(text, NAME)?, Kind::Value { are_typed: *are_typed }));
            }
        };
        let [kind, text_kind] = attributes.kind;
        let is_text = attribute(text, kind).map_or(attributes.is_text, |kind| kind == text_kind);
        let types = if is_text { Types::STRING } else { Types::JSON };
        Some((attribute(text, attributes.parameter)?, Kind::Tag(types)))
    }

    /// Returns whether the text of a tag with a name may go on after its last character `c`.
    fn may_go_on(&self, text: &str, c: char) -> bool {
        let is_tag = c == '<' && !self.name_end.starts_with('<');
        text.len() <= MAX_NAME_LEN && !is_tag && c != '\n'
    }
}

/// Returns a name as it is written, without white space and quotes.
fn without_quotes(text: &str) -> &str {
    let text = text.trim();
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text).trim()
}

/// Returns the name of the tool that `name` calls. A tool without a namespace may have its own name
/// for one.
fn undoubled(name: String, tools: &Tools) -> String {
    let is_tool = |name: &str| tools.parameters(name).is_some();
    let doubled = name.split_once('.').filter(|(space, tool)| space == tool);
    let tool = doubled.filter(|(_, tool)| !is_tool(&name) && is_tool(tool));
    tool.map(|(_, tool)| tool.to_owned()).unwrap_or(name)
}

/// Returns the attribute of this name.
fn attribute(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        if key.trim() == name {
            return Some(value.replace("&quot;", "\"").replace("&amp;", "&"));
        }
        rest = after;
    }
}

/// The attribute of [`Names::Doubled`].
const NAME: &str = "name";

const PARAMETER: usize = 0;
const FUNCTION_END: usize = 1;
const CALL_END: usize = 2;
const FUNCTION: usize = 3;
/// The closing tag of a value, after which the function goes on.
const VALUE_END: usize = 4;
/// The end of the block in [`Tags::between`].
const CALLS_END: usize = 1;

/// The meanings of [`Tags::value_ends`].
const ENDS_OF_VALUES: [usize; 3] = [VALUE_END, FUNCTION_END, PARAMETER];

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

    fn name(&mut self, text: &str) -> Step {
        let Some(name) = self.tags.function(text, &self.tools) else { return Step::Refused };
        let framed = self.tags.has_framed_values;
        self.values = Some(TaggedValues::new(&self.tools, &name, Types::STRING, framed));
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
        let is_function = self.tags.first.first() == Some(&self.tags.openings[marker]);
        self.state = if is_function {
            State::Name(String::new())
        } else {
            State::Between(Expected::new(self.tags.first))
        };
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Between(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(0) => self.state = State::Name(String::new()),
                Match::Whole(CALLS_END) if self.has_call => return Step::Done,
                // Layout. Markers after a call are no text of their own.
                Match::Whole(word) => {
                    if self.has_call && self.tags.between[word].starts_with('<') {
                        calls.forget();
                    }
                }
                Match::No => return Step::Refused,
            },
            State::Name(text) => {
                text.push(c);
                if let Some(name) = text.strip_suffix(self.tags.name_end) {
                    let name = name.to_owned();
                    return self.name(&name);
                }
                if !self.tags.may_go_on(text, c) {
                    return Step::Refused;
                }
            }
            State::Key(text) => {
                text.push(c);
                if let Some(key) = text.strip_suffix(self.tags.name_end) {
                    let Some((name, kind)) = self.tags.parameter(key) else {
                        return Step::Refused;
                    };
                    let Some(values) = &mut self.values else { return Step::Refused };
                    match kind {
                        Kind::Tools => values.begin(&name, calls),
                        Kind::Tag(types) => values.begin_as(&name, types, calls),
                        Kind::Value { are_typed } => {
                            values.begin_exact(&name, are_typed, calls);
                        }
                    }
                    self.state = State::Value(MarkerFinder::new(self.tags.value_ends));
                } else if !self.tags.may_go_on(text, c) {
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
