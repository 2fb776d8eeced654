//! `POST /v1/completions`: text that continues a prompt.

mod answer;
mod protocol;
mod response;
mod stream;

pub(super) use protocol::{CompletionRequest, Prompts};
pub(super) use response::Completion;
