//! `POST /v1/completions`: text that goes on from a prompt.

mod handler;
mod protocol;
mod response;
mod stream;

pub(super) use handler::create;
pub(super) use protocol::{CompletionRequest, Prompts};
pub(super) use response::Completion;
