//! From the text a model writes to the parts of a message: what it thinks, what it says, and which
//! tools it calls.
//!
//! Models mark these parts each in their own way. A [`ToolParser`] knows one way of marking calls,
//! a [`ReasoningParser`] one way of marking thoughts; a [`Registry`] finds either by its name, and
//! a [`MessageParser`] runs one after the other. All of it is pure string code.
//!
//! # What every parser promises
//! - It reads a stream: `push` takes the text in pieces, however they are cut; `finish` ends it, or
//!   `finish_stopped` where it is known that nothing cut it off. A whole answer is one piece, so
//!   both give the same events once neighbours are merged.
//! - It holds back only what may still become a marker, and gives none of a marker away as content.
//! - It never panics and never loses text: what is no call is content. Three exceptions: white
//!   space that only separates calls, thoughts on a channel of their own that no reasoning parser
//!   reads, and the markers around a call that has started.
//! - Arguments are the JSON text that the model wrote, character by character, as it arrives. Where
//!   the format is not JSON, or writes JSON into a string, they are converted. A raw control
//!   character in a string, which no JSON parser takes, is escaped. Free text is let through by
//!   `openai` alone.
//! - A call that starts has a name, and is ended or broken. One that is cut off or malformed is an
//!   incomplete call: it keeps its name and the arguments that came, and no text repeats them.
//! - Every name that the model calls is passed on: whether such a tool exists is for others to say.
//!
//! # How to add a parser
//! 1. Write a type that implements [`ToolParser`] or [`ReasoningParser`]. Those of this crate are
//!    in `tools/<name>.rs` and `reasoning/<name>.rs`. Most are short, for the parts are shared:
//!    - `scan/`: markers, JSON and Python literals, a character at a time;
//!    - `tools/block.rs`: text with blocks in it that a marker opens, as nearly every format is; a
//!      format implements `Block` and answers each character with a `Step`;
//!    - `tools/json_block.rs`: blocks of `{"name": …, "arguments": …}`;
//!    - `tools/section.rs`: blocks of name, separator, arguments;
//!    - `tools/tagged_values.rs`: arguments as tagged strings, converted by the tool's schema;
//!    - `reasoning/tagged.rs`: thoughts between two markers.
//! 2. Register it: a line in `registry.rs`, or from outside
//!    [`Registry::register_tool_parser`] and [`Registry::register_reasoning_parser`].
//! 3. Give it a table of whole outputs and of broken ones in `tests/`, which cuts each everywhere.

mod event;
mod guess;
mod harmony;
mod message;
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
    ParserKind, ReasoningParserFactory, Registry, ToolParserFactory, UnknownParser,
};
pub use tools::{
    CallIdFormat, ConstraintError, ForcedCall, NamedCallParser, ToolParser, Tools,
    constraint_schema, required_call_parser,
};
