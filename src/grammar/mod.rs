//! Grammars that constrain outputs: from a client's request to the tokens that may come next.
//!
//! [`GrammarStore`] compiles a [`StructuredOutput`] and keeps the result. A [`Matcher`] follows one
//! output: it takes tokens, and returns the [`TokenMask`] of those that may follow. Its state
//! depends only on the format and the tokens. So a lost matcher is restored by feeding the tokens
//! to a new one.
//!
//! [`compile`] turns each format into a grammar, over [`json`], [`gbnf`] and [`structural_tag`],
//! which all produce llguidance's grammar language. [`ascii_classes`] defines `\d`, [`size`]
//! rejects grammars that would take too long, and [`vocabulary`] gives the library the model's
//! tokens.
//!
//! [`StructuredOutput`]: playhouse_actors::logic::request::structured_output::StructuredOutput

mod ascii_classes;
mod compile;
mod gbnf;
mod json;
mod lark;
mod matcher;
mod one_of;
mod size;
mod store;
mod structural_tag;
#[cfg(test)]
pub(crate) mod tests;
mod vocabulary;

pub(crate) use matcher::{Matcher, TokenMask};
pub(crate) use store::GrammarStore;
