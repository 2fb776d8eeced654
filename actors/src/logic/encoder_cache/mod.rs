//! The encoder cache: which images and sounds are encoded, in which order, and which results stay
//! in memory.
//!
//! The scheduler sends the whole list of items that its requests need now ([`EncoderNeeds`]). The
//! answer ([`EncoderAnswer`]) says which of them are ready. An item that is ready stays so while
//! the list names it. Both messages are states and not changes, so a lost message costs only time.

mod cache;
mod jobs;
mod needs;
mod slots;

pub use self::{
    cache::{Encoded, EncoderBatch, EncoderCache, EncoderCacheView},
    jobs::{Arrived, EncoderJobs, EndedBatch, UNENCODABLE},
    needs::{EncoderAnswer, EncoderNeed, EncoderNeeds},
    slots::{EncoderSlots, encoder_budget},
};
