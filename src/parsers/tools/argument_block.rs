//! Calls as a name with arguments, each a key and a value between tags. Every value is a text.

use super::{
    super::scan::{Expected, MarkerFinder, Match, Words},
    block::{Block, BlockParser, Step},
    calls::Calls,
    schema::{Tools, Types},
    tagged_values::TaggedValues,
};

/// Bytes of the longest name of a function or of an argument.
const MAX_NAME_LEN: usize = 256;
/// Bytes of the longest suffix of tags.
const MAX_SUFFIX_LEN: usize = 64;

/// The form of a format's blocks.
#[derive(Debug)]
pub(super) struct ArgumentFormat {
    /// The tags that open a block. One that ends with a colon goes on with a suffix, which all tags
    /// of the block have.
    pub(super) openings: &'static [&'static str],
    /// The beginning of the names of tags.
    pub(super) prefix: &'static str,
    /// Whether a block is a section of calls, and not one call.
    pub(super) has_section: bool,
    /// Whether a tag may stand between a name and the arguments.
    pub(super) has_separator: bool,
    /// The types of an argument that the tools do not describe.
    pub(super) unknown: Types,
}

/// The tags of a block.
#[derive(Debug)]
struct Tags {
    /// The beginning of a call, and the end of the section.
    between: Words,
    /// Those that end a name, in the order of the constants below.
    after_name: Words,
    /// Those within a call, in the order of the constants below.
    in_call: Words,
    key_end: String,
    /// A value, and a type before it.
    before_value: Words,
    kind_end: String,
    value_end: Words,
}

const KEY: usize = 0;
const CALL_END: usize = 1;
const SEPARATOR: usize = 2;
/// The tag before a type in [`Tags::before_value`].
const KIND: usize = 1;

impl Tags {
    fn new(format: &ArgumentFormat, suffix: &str) -> Self {
        let prefix = format.prefix;
        let tag = |name: &str| format!("<{prefix}{name}{suffix}>");
        let end = |name: &str| format!("</{prefix}{name}{suffix}>");
        let in_call = vec![tag("arg_key"), end("tool_call")];
        let mut after_name = in_call.clone();
        if format.has_separator {
            after_name.push(tag("tool_sep"));
        }
        Self {
            between: vec![tag("tool_call"), end("tool_calls")].into(),
            after_name: after_name.into(),
            in_call: in_call.into(),
            key_end: end("arg_key"),
            before_value: vec![tag("arg_value"), tag("arg_type")].into(),
            kind_end: end("arg_type"),
            value_end: vec![end("arg_value")].into(),
        }
    }
}

/// A block of calls.
pub(super) struct ArgumentBlock {
    format: &'static ArgumentFormat,
    tags: Tags,
    tools: Tools,
    state: State,
    values: Option<TaggedValues>,
    has_call: bool,
}

enum State {
    /// The suffix of all tags, with its colon, as far as it has been read.
    Suffix(String),
    /// A call, or the end of the section, comes next.
    Between(Expected),
    /// The name, and the tag that ends it.
    Name {
        name: String,
        tag: MarkerFinder,
    },
    /// An argument, or the end of the call, comes next.
    InCall(Expected),
    Key(String),
    /// The tag before a value comes next, or that before its type, which a few models write.
    BeforeValue {
        key: String,
        kind: Option<Types>,
        tag: Expected,
    },
    /// The type of a value.
    Kind {
        key: String,
        text: String,
    },
    Value(MarkerFinder),
}

impl ArgumentBlock {
    /// Returns a parser of calls in this format.
    pub(super) fn parser(format: &'static ArgumentFormat, tools: &Tools) -> BlockParser<Self> {
        let (tags, tools) = (Tags::new(format, ""), tools.clone());
        let state = State::Suffix(String::new());
        BlockParser::new(Self { format, tags, tools, state, values: None, has_call: false })
    }

    /// Begins the content of a block whose tags have this suffix.
    fn begin(&mut self, suffix: &str) {
        self.tags = Tags::new(self.format, suffix);
        self.state = match self.format.has_section {
            true => State::Between(Expected::new(self.tags.between.clone())),
            false => self.before_name(),
        };
    }

    fn before_name(&self) -> State {
        let tag = MarkerFinder::new(self.tags.after_name.clone());
        State::Name { name: String::new(), tag }
    }

    fn in_call(&self) -> State {
        State::InCall(Expected::new(self.tags.in_call.clone()))
    }

    /// Handles a tag within a call.
    fn tag(&mut self, tag: usize, calls: &mut Calls) -> Step {
        let Some(values) = &mut self.values else { return Step::Refused };
        if !calls.is_open() {
            values.start(calls);
        }
        if tag == CALL_END {
            values.close(calls);
            self.has_call = true;
            if !self.format.has_section {
                return Step::Done;
            }
        }
        self.state = match tag {
            KEY => State::Key(String::new()),
            SEPARATOR => self.in_call(),
            _ => State::Between(Expected::new(self.tags.between.clone())),
        };
        Step::More
    }
}

impl Block for ArgumentBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        self.format.openings
    }

    fn open(&mut self, marker: usize) {
        self.values = None;
        self.has_call = false;
        if self.format.openings[marker].ends_with(':') {
            self.state = State::Suffix(":".to_owned());
        } else {
            self.begin("");
        }
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Suffix(suffix) if c == '>' => {
                let suffix = std::mem::take(suffix);
                self.begin(&suffix);
            }
            State::Suffix(suffix) => {
                suffix.push(c);
                if suffix.len() > MAX_SUFFIX_LEN || c == '<' || c.is_whitespace() {
                    return Step::Refused;
                }
            }
            State::Between(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(0) => self.state = self.before_name(),
                Match::Whole(_) => {
                    if !self.has_call {
                        // A section without a call is plain text.
                        calls.refuse();
                    }
                    return Step::Done;
                }
                Match::No => return Step::Refused,
            },
            State::Name { name, tag } => {
                let tag = tag.push(c, name);
                let word = name.trim();
                let is_name = !word.contains(['<', '{', '\n']) && name.len() <= MAX_NAME_LEN;
                if !is_name || tag.is_some() && word.is_empty() {
                    return Step::Refused;
                }
                if let Some(tag) = tag {
                    let unknown = self.format.unknown;
                    self.values = Some(TaggedValues::new(&self.tools, word, unknown, false));
                    return self.tag(tag, calls);
                }
            }
            State::InCall(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(tag) => return self.tag(tag, calls),
                Match::No => return Step::Refused,
            },
            State::Key(key) => {
                key.push(c);
                if let Some(whole) = key.strip_suffix(self.tags.key_end.as_str()) {
                    let key = whole.trim().to_owned();
                    let tag = Expected::new(self.tags.before_value.clone());
                    self.state = State::BeforeValue { key, kind: None, tag };
                } else if key.len() > MAX_NAME_LEN {
                    return Step::Refused;
                }
            }
            State::BeforeValue { key, kind, tag } => match tag.step(c) {
                Match::Partial => {}
                Match::Whole(KIND) => {
                    let key = std::mem::take(key);
                    self.state = State::Kind { key, text: String::new() };
                }
                Match::Whole(_) => {
                    let Some(values) = &mut self.values else { return Step::Refused };
                    values.begin_or(key, *kind, calls);
                    self.state = State::Value(MarkerFinder::new(self.tags.value_end.clone()));
                }
                Match::No => return Step::Refused,
            },
            State::Kind { key, text } => {
                text.push(c);
                if let Some(name) = text.strip_suffix(self.tags.kind_end.as_str()) {
                    let (key, kind) = (std::mem::take(key), Types::named(name));
                    let tag = Expected::new(self.tags.before_value.clone());
                    self.state = State::BeforeValue { key, kind: Some(kind), tag };
                } else if text.len() > MAX_NAME_LEN {
                    return Step::Refused;
                }
            }
            State::Value(finder) => {
                let mut text = String::new();
                let end = finder.push(c, &mut text);
                let Some(values) = &mut self.values else { return Step::Refused };
                values.push(&text, calls);
                if end.is_some() {
                    values.end(calls);
                    self.state = self.in_call();
                }
            }
        }
        Step::More
    }

    fn is_done(&self) -> bool {
        self.has_call && matches!(self.state, State::Between(_))
    }
}
