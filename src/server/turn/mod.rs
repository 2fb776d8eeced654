//! The assistant's turn: the parts that all chat protocols share.
//!
//! A handler builds a [`TurnRequest`] from its protocol's fields and [plans](TurnRequest::plan) it.
//! The plan is the request for the engine and a [`TurnStyle`], which makes a [`TurnReader`] for
//! each choice. The reader splits the outputs, as they come, into thoughts, content and tool calls.
//! [`Turn`] is the same for an answer in one piece, built from the same events.

mod allowed_tools;
mod answer;
mod call_id;
mod parsers;
mod reader;
mod reasoning_tokens;
mod request;
mod tool_choice;

#[cfg(test)]
mod cut_tests;
#[cfg(test)]
pub(super) mod outputs;
#[cfg(test)]
mod strict_tests;
#[cfg(test)]
pub(super) mod tests;

pub(super) use allowed_tools::{AllowedForm, allow};
pub(super) use answer::{ToolCall, Turn};
pub(super) use parsers::TurnParsers;
pub(super) use reader::{TurnEvent, TurnReader};
pub(super) use request::{TurnRequest, TurnStyle};
pub(super) use tool_choice::{ToolChoice, check_tools};
