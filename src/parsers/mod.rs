//! From a model's text to the parts of a message: thoughts, content and tool calls.
//!
//! Each family of models marks these parts in its own way. A [`ToolParser`] knows one way of
//! marking calls, and a [`ReasoningParser`] one way of marking thoughts. A [`Registry`] finds
//! either by its name, and a [`MessageParser`] runs one after the other. All of it is pure string
//! code.
//!
//! # Promises of every parser
//! - It reads a stream. `push` takes the text in pieces, however they are cut. `finish` ends it, or
//!   `finish_stopped` if it is known that the text was not cut off. A complete answer is one piece,
//!   so both give the same events once neighbouring events are merged.
//! - It holds back only text that may still become a marker. It gives no part of a marker away as
//!   content.
//! - It never panics and never loses text: text that is no call is content. White space that only
//!   separates calls is excepted. So are the markers around a call that has started, and thoughts
//!   on a channel of their own that no reasoning parser reads. Muse's messages to developers and
//!   MiniCPM-V's reserved markers are dropped, too.
//! - Arguments are the JSON text that the model wrote, character by character, as it arrives. They
//!   are converted if the format is not JSON, or writes JSON into a string. A raw control character
//!   in a string, which no JSON parser accepts, is escaped. Only `openai` passes free text on.
//! - A call that starts has a name, and is ended or broken. One that is cut off or malformed is an
//!   incomplete call. It keeps its name and the arguments that arrived, and no text repeats them.
//! - Every name that the model calls is passed on. Other code checks whether a tool of this name
//!   exists.
//!
//! # How to add a parser
//! 1. Write a type that implements [`ToolParser`] or [`ReasoningParser`]. Those of this crate are
//!    in `tools/<name>.rs` and `reasoning/<name>.rs`. Most are short, because they share these
//!    parts:
//!    - `scan/`: markers, JSON and Python literals, a character at a time;
//!    - `tools/block.rs`: text with blocks that a marker opens, which nearly every format has; a
//!      format implements `Block` and answers each character with a `Step`;
//!    - `tools/json_block.rs`: blocks of `{"name": …, "arguments": …}`;
//!    - `tools/section.rs`: blocks of name, separator, arguments;
//!    - `tools/function_block.rs`: functions with parameters between tags;
//!    - `tools/argument_block.rs`: names with keys and values between tags;
//!    - `tools/tagged_values.rs`: arguments as tagged strings, converted by the tool's schema;
//!    - `harmony.rs` and `muse.rs`: messages with headers, for both kinds of parsers;
//!    - `reasoning/tagged.rs`: thoughts between two markers;
//!    - `reasoning/framed.rs`: the same, before an answer between two tags.
//! 2. Register it: with a line in `registry.rs`, or from outside with
//!    [`EngineBuilder::tool_parser`](crate::engine::EngineBuilder::tool_parser) and
//!    [`EngineBuilder::reasoning_parser`](crate::engine::EngineBuilder::reasoning_parser).
//! 3. Give it a table of complete outputs and of broken ones in `tests/`, which cuts each at every
//!    place. If vLLM has the parser, add outputs to `tests/inputs.json` and run `tests/record.py`.

mod event;
mod guess;
mod harmony;
mod message;
mod muse;
mod reasoning;
mod registry;
mod scan;
mod tools;

#[cfg(test)]
mod tests;

pub use event::{MessageEvent, ReasoningEvent, ToolEvent};
pub use guess::{guess_reasoning_parser, guess_tool_parser};
pub use message::{Message, MessageParser, ParsedCall};
pub use reasoning::{ReasoningMarkers, ReasoningParser, ReasoningStart};
pub use registry::{
    DuplicateParser, ParserKind, ReasoningParserFactory, Registry, ReservedParser,
    ToolParserFactory, UnknownParser,
};
pub use tools::{
    CallIdFormat, ConstraintError, ForcedCall, NamedCallParser, ToolParser, Tools,
    constraint_schema, required_call_parser,
};
