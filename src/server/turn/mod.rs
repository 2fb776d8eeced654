//! The assistant's turn: what all chat protocols share.
//!
//! A handler makes a [`TurnRequest`] of its protocol's fields and [plans](TurnRequest::plan) it.
//! That gives the request for the engine and a [`TurnStyle`], which makes a [`TurnReader`] for each
//! choice. The reader takes the outputs as they come and tells what they are: thoughts, content and
//! tool calls. [`Turn`] is the same for an answer in one piece, made of the same events.

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
