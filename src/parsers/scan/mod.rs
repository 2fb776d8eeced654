//! Scanners that take a character at a time, so that the cuts of a text do not matter.

mod expected;
mod gemma;
mod json;
mod markers;
mod newlines;
mod python;
mod words;

pub(super) use expected::{Expected, Match};
pub(super) use gemma::{GemmaLiteral, GemmaStep};
pub(super) use json::{JsonScanner, JsonStep, escape_json_char, quote_json};
pub(super) use markers::MarkerFinder;
pub(super) use newlines::WrittenNewlines;
pub(super) use python::{PythonLiteral, PythonStep, python_to_json};
pub(super) use words::Words;
