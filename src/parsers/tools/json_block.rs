//! Blocks of calls that are JSON objects, alone or in a list.

use serde_json::Value;

use super::{
    super::scan::{Expected, Match},
    block::{Block, Step},
    call_object::{CallObject, Rigour},
    calls::Calls,
    schema::Tools,
    strict::{Frame, object_call, structural_tag},
};

/// A format's frame of its objects.
#[derive(Debug)]
pub(super) struct JsonFormat {
    /// Markers that open a block. A marker that is a brace or ends with a bracket is JSON itself.
    pub(super) markers: &'static [&'static str],
    /// Whether a block may begin within a text.
    pub(super) is_anywhere: bool,
    pub(super) shape: Shape,
    /// The strictness after a marker. An object without one is always bare.
    pub(super) rigour: Rigour,
    /// The text after the calls of a block, if the last call does not end the block.
    pub(super) tail: Tail,
    /// Frames of calls that are constrained to a schema. Empty if a call cannot be told from text.
    pub(super) frames: &'static [Frame],
}

/// The content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    List,
    Object,
    ObjectOrList,
}

/// The text after the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing.
    None,
    /// A closing tag, which may be left out, or another call.
    Tag(&'static [&'static str]),
    /// Another call, which may follow a semicolon.
    Another,
}

/// Reads blocks of a [`JsonFormat`].
pub(super) struct JsonBlock<const SPECIAL_TOKENS: bool> {
    format: &'static JsonFormat,
    calls: JsonCalls,
    tail: Option<Expected>,
}

impl<const SPECIAL_TOKENS: bool> JsonBlock<SPECIAL_TOKENS> {
    pub(super) fn new(format: &'static JsonFormat) -> Self {
        Self { format, calls: JsonCalls::new(format.shape, format.rigour), tail: None }
    }

    fn step_tail(&mut self, c: char, calls: &mut Calls) -> Step {
        let Some(tail) = &mut self.tail else { return Step::Refused };
        match tail.step(c) {
            Match::Partial => Step::More,
            Match::Whole(index) if self.format.tail_words()[index] == "{" => {
                self.tail = None;
                self.calls = JsonCalls::new(Shape::Object, self.format.rigour_without_marker());
                self.calls.step(c, calls)
            }
            Match::Whole(index) if self.format.tail_words()[index] == ";" => Step::More,
            Match::Whole(_) => Step::Done,
            Match::No => Step::Refused,
        }
    }

    /// As [`JsonCalls::cut`].
    pub(super) fn cut_call(&mut self, calls: &mut Calls) {
        self.calls.cut(calls);
    }
}

impl JsonFormat {
    fn tail_words(&self) -> &'static [&'static str] {
        match self.tail {
            Tail::None => &[],
            Tail::Tag(words) => words,
            Tail::Another => &[";", "{"],
        }
    }

    /// Returns the strictness for an object that follows another.
    fn rigour_without_marker(&self) -> Rigour {
        if matches!(self.tail, Tail::Tag(_)) { self.rigour } else { Rigour::Bare }
    }
}

impl<const SPECIAL_TOKENS: bool> Block for JsonBlock<SPECIAL_TOKENS> {
    const SPECIAL_TOKENS: bool = SPECIAL_TOKENS;

    fn markers(&self) -> &'static [&'static str] {
        self.format.markers
    }

    fn is_anywhere(&self) -> bool {
        self.format.is_anywhere
    }

    fn open(&mut self, marker: usize) {
        let marker = self.format.markers[marker];
        let is_bare = matches!(marker, "{" | "[");
        let rigour = if is_bare { Rigour::Bare } else { self.format.rigour };
        self.calls = match marker.chars().next_back() {
            Some('{') => JsonCalls::in_object(rigour),
            Some('[') => JsonCalls::in_list(rigour),
            _ => JsonCalls::new(self.format.shape, rigour),
        };
        self.tail = None;
    }

    fn strict_calls(&self, tools: &Tools, parallel_tool_calls: bool) -> Option<Value> {
        structural_tag(self.format.frames, None, tools, parallel_tool_calls, object_call)
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        if self.tail.is_some() {
            return self.step_tail(c, calls);
        }
        match self.calls.step(c, calls) {
            Step::Done if self.format.tail != Tail::None => {
                calls.forget();
                self.tail = Some(Expected::new(self.format.tail_words()));
                Step::More
            }
            step => step,
        }
    }

    fn is_done(&self) -> bool {
        self.tail.is_some()
    }
}

/// Reads one object or a list of them.
#[derive(Debug)]
pub(super) struct JsonCalls {
    shape: Shape,
    rigour: Rigour,
    state: State,
    object: CallObject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The brace or bracket comes next.
    Open,
    /// In the object, which is the whole block.
    Alone,
    /// In an object of a list, or before it.
    Element,
    /// A comma or the end of the list comes next.
    Next,
}

impl JsonCalls {
    pub(super) fn new(shape: Shape, rigour: Rigour) -> Self {
        Self { shape, rigour, state: State::Open, object: CallObject::new(rigour) }
    }

    /// Returns a reader of an object whose first brace has been read.
    fn in_object(rigour: Rigour) -> Self {
        let mut calls = Self::new(Shape::Object, rigour);
        calls.state = State::Alone;
        calls.object = CallObject::opened(rigour);
        calls
    }

    /// Returns a reader of a list whose first bracket has been read.
    fn in_list(rigour: Rigour) -> Self {
        Self { state: State::Element, ..Self::new(Shape::List, rigour) }
    }

    pub(super) fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match self.state {
            State::Alone => self.object.step(c, calls),
            State::Element => match self.object.step(c, calls) {
                Step::Done => self.go(State::Next),
                step => step,
            },
            State::Open | State::Next if matches!(c, ' ' | '\t' | '\n' | '\r') => Step::More,
            State::Open => match (c, self.shape) {
                ('{', Shape::Object | Shape::ObjectOrList) => {
                    self.state = State::Alone;
                    self.object.step(c, calls)
                }
                ('[', Shape::List | Shape::ObjectOrList) => self.go(State::Element),
                _ => Step::Refused,
            },
            State::Next => match c {
                ',' => {
                    self.object = CallObject::new(self.rigour);
                    self.go(State::Element)
                }
                ']' => Step::Done,
                _ => Step::Refused,
            },
        }
    }

    /// Ends the text. Starts the call whose name has arrived.
    pub(super) fn cut(&mut self, calls: &mut Calls) {
        if matches!(self.state, State::Alone | State::Element) {
            self.object.cut(calls);
        }
    }

    fn go(&mut self, state: State) -> Step {
        self.state = state;
        Step::More
    }
}
