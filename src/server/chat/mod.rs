//! `POST /v1/chat/completions`: the next message of a conversation.

mod conversation;
mod handler;
mod messages;
mod protocol;
mod response;
mod stream;
mod tools;

pub(super) use conversation::ConversationFields;
pub(super) use handler::create;
pub(super) use protocol::ChatRequest;
pub(super) use response::ChatCompletion;
