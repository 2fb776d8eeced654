//! `POST /v1/chat/completions`: the next message of a conversation.

mod answer;
mod batch;
mod conversation;
mod delta;
mod messages;
mod protocol;
mod response;
mod stream;
#[cfg(test)]
mod tests;

pub(super) use batch::{BatchRequest, create_batch};
pub(super) use conversation::{
    ConversationFields, complete_kwargs, given_kwargs, request_template, template_kwargs,
    with_default_kwargs,
};
pub(super) use messages::{check_messages, check_part};
pub(super) use protocol::ChatRequest;
pub(super) use response::ChatCompletion;
