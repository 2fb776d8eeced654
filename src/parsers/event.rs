//! What a parser says about the text it is given.

/// What a [`ToolParser`](super::ToolParser) found, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text that is no part of a call.
    Content(String),
    /// A call begins. The events of one call stand between its start and its end or its break, and
    /// no other call's stand between them.
    CallStart {
        /// Counts the calls of an answer, from 0.
        index: usize,
        /// The function's name, as the model wrote it: it need not be one of the tools on offer.
        name: String,
        /// The id that the model gave the call, in formats that have one.
        id: Option<String>,
    },
    /// A piece of the arguments. Together the pieces of a call are the text of one JSON value.
    CallArguments {
        /// Which call.
        index: usize,
        /// The next piece; never empty.
        delta: String,
    },
    /// The call is whole.
    CallEnd {
        /// Which call.
        index: usize,
    },
    /// A call that had started was cut off, or turned out to be malformed. It stays a call, with the
    /// arguments that came: a stream has shown them, and a whole answer says the same.
    CallBroken {
        /// Which call.
        index: usize,
    },
}

/// What a [`ReasoningParser`](super::ReasoningParser) found, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasoningEvent {
    /// Text that the model thinks to itself.
    Reasoning(String),
    /// Text of the answer, which may hold tool calls.
    Content(String),
}

/// What a [`MessageParser`](super::MessageParser) found, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEvent {
    /// Text that the model thinks to itself.
    Reasoning(String),
    /// Content, or a part of a call.
    Answer(ToolEvent),
}
