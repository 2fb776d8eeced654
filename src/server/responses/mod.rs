//! `/v1/responses`: OpenAI's Responses API.
//!
//! [`input`] reads the items of a request, and [`messages`] makes the conversation of them that the
//! model sees. A [`writer::ResponseWriter`] turns the model's answer into events and, at their end,
//! the response. An answer in one piece is made of the same events. The [`store`] keeps responses,
//! so that later ones can continue them. Those in the [`background`] run without their client.

mod answer;
mod background;
mod count;
mod events;
mod fields;
mod follow;
mod freeform;
mod ids;
mod index;
mod input;
mod items;
mod keeper;
mod kept;
mod messages;
mod output;
mod protocol;
mod refused;
mod response;
mod shared;
mod store;
mod stored;
mod text_format;
mod tool_names;
mod tools;
mod transfer;
mod weight;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use count::{InputTokens, count_input_tokens};
pub(super) use kept::{cancel, delete, input_items, retrieve};
pub(super) use protocol::ResponsesRequest;
pub(super) use store::ResponseStore;
pub(super) use transfer::ResponsePart;
