//! Grammars that constrain outputs: from what a client asks for to the tokens that may come next.
//!
//! [`GrammarStore`] compiles what [`StructuredOutput`] describes and keeps it. A [`Matcher`] walks
//! one output through it: tokens in, the [`TokenMask`] of those that may follow out. Everything it
//! knows follows from the format and the tokens, so a matcher that is lost is made again by feeding
//! a new one.
//!
//! [`compile`] says what each format means, over [`json`], [`gbnf`] and [`structural_tag`], which
//! all end in the grammar language of llguidance; [`ascii_classes`] says what `\d` means, [`size`] refuses what would take too long, and
//! [`vocabulary`] tells that library our tokens.
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
