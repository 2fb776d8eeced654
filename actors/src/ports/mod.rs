//! What the actors need from outside, as traits; the adapters live in the `playhouse` crate.
mod text;

pub use text::{ChatPrompt, DecodeOptions, IncrementalDecoder, TextCodec, TextError};
