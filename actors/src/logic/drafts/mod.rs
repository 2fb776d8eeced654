//! Drafts: guesses of a request's next tokens, which one step verifies together.
//!
//! A token is a function of the tokens before it, the request's seed and its position. A guess is
//! therefore accepted if it equals the model's own draw at its place, and otherwise the draw
//! counts. The output is the same as without guesses, whatever is guessed.
//!
//! [`ngram`] and [`suffix`] guess by earlier text, without a model. [`verify`] decides which draws
//! count. [`pace`] decides how many guesses are worth their time, by the times of [`cost`].

pub mod cost;
pub mod ngram;
pub mod pace;
pub mod suffix;
pub mod verify;
