//! Anthropic's Messages API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.
//!
//! Blocks become a conversation of chat messages ([`conversation`]). It is planned and read like
//! those of other protocols ([`turn`](super::turn)). The model's output becomes blocks again: in
//! one piece ([`content`]), or event by event ([`block_events`]). A layer around the routes writes
//! the errors ([`error`]), so other code need not know this API's shape of errors.

mod answer;
mod block_events;
mod content;
mod conversation;
mod count_tokens;
mod error;
mod event;
mod partial_input;
mod prompt;
mod protocol;
mod response;
mod stream;
mod thinking;
mod tools;
mod unsupported;

pub(super) use count_tokens::{CountTokensRequest, TokensCount, count_tokens};
pub(super) use error::{ErrorBody, in_own_shape, is_ours};
pub(super) use protocol::MessagesRequest;
pub(super) use response::Message;
