//! The names of things: small integers that travel between actors.

/// One entry of a model's vocabulary.
pub type TokenId = u32;
