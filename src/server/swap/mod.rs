//! `POST /swap_model`: another model in the place of the one that is served.
//!
//! The other model is loaded beside the first. Then its routes take the place of the first one's
//! ([`swaps`]). Requests that have begun keep the routes, and so the engine, of their beginning.
//! The first engine ends when it has no request, and its memory is released.

mod request;
mod served;
mod swaps;
mod turns;

pub use self::served::ServedEngine;
pub(super) use self::{
    request::{SwapModelRequest, swap_model},
    swaps::Swaps,
    turns::Turn,
};
