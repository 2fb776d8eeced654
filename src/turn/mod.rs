//! The assistant's turn: the parts that the chat protocols and [`Engine::chat`] share.
//!
//! A caller builds a [`TurnRequest`] and [plans](TurnRequest::plan_with) it. The plan is the
//! request for the engine and a [`TurnStyle`], which makes a [`TurnReader`] for each choice. The
//! reader splits the outputs, as they come, into thoughts, content and tool calls. [`Turn`] is the
//! same for an answer in one piece, built from the same events.
//!
//! [`Engine::chat`]: crate::engine::Engine::chat

mod answer;
mod call_id;
mod error;
mod parsers;
mod reader;
mod reasoning_tokens;
mod request;
mod tool_choice;

#[cfg(test)]
mod cut_tests;
#[cfg(test)]
pub(crate) mod outputs;
#[cfg(test)]
mod strict_tests;
#[cfg(test)]
pub(crate) mod test_codec;
#[cfg(test)]
pub(crate) mod tests;

pub use answer::{ToolCall, Turn};
pub use error::TurnError;
pub(crate) use parsers::{ParserChoices, TurnParsers};
pub use reader::TurnEvent;
pub(crate) use reader::{NoteReading, TurnReader};
pub(crate) use request::{TurnRequest, TurnStyle};
pub use tool_choice::ToolChoice;
