//! Blocks of calls that are a name, a separator and the arguments as a JSON object.

use serde_json::Value;

use super::{
    super::scan::{Expected, JsonScanner, JsonStep, Match, escape_json_char},
    block::{Block, Step},
    calls::Calls,
    schema::Tools,
    strict::{Frame, is_plain, structural_tag},
};

/// Length of the longest head, in bytes. The head is the text before a call's arguments, with the
/// name.
const MAX_HEAD_LEN: usize = 512;

/// The arguments of a call: a JSON object, which is passed on as it arrives.
#[derive(Debug, Default)]
pub(super) struct JsonArguments {
    scanner: JsonScanner,
    has_begun: bool,
}

impl JsonArguments {
    /// Takes the next character. The call starts with the first character that is not white space.
    pub(super) fn step(
        &mut self,
        c: char,
        name: &str,
        id: Option<&str>,
        calls: &mut Calls,
    ) -> Step {
        if !self.has_begun {
            match c {
                '{' => calls.start(name.to_owned(), id.map(str::to_owned)),
                c if c.is_whitespace() => return Step::More,
                _ => return Step::Refused,
            }
            self.has_begun = true;
        }
        let mut text = String::new();
        let step = self.scanner.step(c);
        match step {
            JsonStep::Control => escape_json_char(c, &mut text),
            JsonStep::More | JsonStep::Done => text.push(c),
            JsonStep::DoneBefore | JsonStep::Bad => return Step::Refused,
        }
        calls.arguments(&text);
        if step != JsonStep::Done {
            return Step::More;
        }
        calls.end();
        Step::Done
    }
}

/// The markers around a format's calls.
#[derive(Debug)]
pub(super) struct SectionFormat {
    /// The markers that open the section and a call. A call without a section is accepted.
    pub(super) markers: [&'static str; 2],
    /// The text between the head of a call and its arguments.
    pub(super) separator: &'static str,
    /// Markers that may stand between the arguments and the end of the call.
    pub(super) after_arguments: &'static [&'static str],
    /// The index in `after_arguments` of the end of the call.
    pub(super) call_end: usize,
    /// The markers between calls: the start of another call, or the end of the section.
    pub(super) between: &'static [&'static str; 2],
    /// Frames of calls that are constrained to a schema.
    pub(super) frames: &'static [Frame],
}

/// The content of a call's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) id: Option<String>,
}

/// Reads the text between the start of a call and its arguments.
pub(super) trait ReadHead: Send {
    /// Returns the head, or `None` if `text` is no head.
    fn read(&self, text: &str) -> Option<Head>;

    /// Returns the tag of a structural tag for a call to `name`, whose arguments have the format
    /// `arguments`. `None` if the call cannot be written.
    fn write(&self, name: &str, arguments: Value) -> Option<Value>;
}

/// Reads blocks of a [`SectionFormat`].
pub(super) struct Section<R> {
    format: &'static SectionFormat,
    reader: R,
    state: State,
    /// Whether the block has a complete call.
    has_call: bool,
}

enum State {
    /// Another call or the end of the section comes next.
    Between(Expected),
    Head(String),
    Arguments(Head, JsonArguments),
    /// After the arguments.
    After(Expected),
}

impl<R> Section<R> {
    pub(super) fn new(format: &'static SectionFormat, reader: R) -> Self {
        Self { format, reader, state: State::Head(String::new()), has_call: false }
    }
}

impl<R: ReadHead> Block for Section<R> {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        &self.format.markers
    }

    fn open(&mut self, marker: usize) {
        self.has_call = false;
        self.state = match marker {
            0 => State::Between(Expected::new(self.format.between)),
            _ => State::Head(String::new()),
        };
    }

    fn strict_calls(&self, tools: &Tools, parallel_tool_calls: bool) -> Option<Value> {
        let bare = Some(self.format.markers[1]);
        structural_tag(self.format.frames, bare, tools, parallel_tool_calls, |name, arguments| {
            self.reader.write(name, arguments).filter(|_| is_plain(name))
        })
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Between(expected) => match expected.step(c) {
                Match::Partial => {}
                Match::Whole(0) => self.state = State::Head(String::new()),
                Match::Whole(_) => {
                    if !self.has_call {
                        // A section without a call is plain text.
                        calls.refuse();
                    }
                    return Step::Done;
                }
                Match::No => return Step::Refused,
            },
            State::Head(text) => {
                text.push(c);
                if let Some(head) = text.strip_suffix(self.format.separator) {
                    let Some(head) = self.reader.read(head) else { return Step::Refused };
                    self.state = State::Arguments(head, JsonArguments::default());
                } else if text.len() > MAX_HEAD_LEN {
                    return Step::Refused;
                }
            }
            State::Arguments(head, arguments) => {
                match arguments.step(c, &head.name, head.id.as_deref(), calls) {
                    Step::Done => {
                        self.has_call = true;
                        self.state = State::After(Expected::new(self.format.after_arguments));
                    }
                    step => return step,
                }
            }
            State::After(expected) => match expected.step(c) {
                Match::Whole(index) if index == self.format.call_end => {
                    calls.forget();
                    self.state = State::Between(Expected::new(self.format.between));
                }
                Match::Partial | Match::Whole(_) => {}
                Match::No => return Step::Refused,
            },
        }
        Step::More
    }

    fn is_done(&self) -> bool {
        self.has_call && matches!(self.state, State::After(_) | State::Between(_))
    }
}
