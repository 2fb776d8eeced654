//! Events of parsers.

/// A finding of a [`ToolParser`](super::ToolParser), in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text that is not part of a call.
    Content(String),
    /// A call begins. The events of one call stand between its start and its end or break. Events
    /// of no other call stand between them.
    CallStart {
        /// The number of the call within the answer, from 0.
        index: usize,
        /// The function's name as the model wrote it. It need not be one of the request's tools.
        name: String,
        /// The id that the model gave the call, in formats that have one.
        id: Option<String>,
    },
    /// A piece of the arguments. Together the pieces of a call are the text of one JSON value.
    CallArguments {
        /// The number of the call.
        index: usize,
        /// The next piece, which is never empty.
        delta: String,
    },
    /// The call is complete.
    CallEnd {
        /// The number of the call.
        index: usize,
    },
    /// A call that had started was cut off, or is malformed. It stays a call with the arguments
    /// that arrived. A stream has already shown them, and a complete answer holds the same.
    CallBroken {
        /// The number of the call.
        index: usize,
    },
}

/// A finding of a [`ReasoningParser`](super::ReasoningParser), in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasoningEvent {
    /// The model's thoughts.
    Reasoning(String),
    /// Text of the answer, which may hold tool calls.
    Content(String),
}

/// A finding of a [`MessageParser`](super::MessageParser), in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEvent {
    /// The model's thoughts.
    Reasoning(String),
    /// Content, or a part of a call.
    Answer(ToolEvent),
}
