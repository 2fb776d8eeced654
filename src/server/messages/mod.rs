//! Anthropic's Messages API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.
//!
//! Blocks become a conversation of chat messages ([`conversation`]), which is planned and read as
//! those of other protocols are ([`turn`](super::turn)); what the model does becomes blocks again:
//! in one piece ([`content`]), or event by event ([`block_events`]). Errors are written once, by a
//! layer around the routes ([`error`]), so whoever refuses a request need not know of them.

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
