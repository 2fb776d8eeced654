//! The words that shells complete as the values of flags.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

use crate::{config::Setting, parsers::Registry};

/// Takes any text, and suggests some words. [`crate::config`] interprets the text, because a value
/// may have other spellings, and a file has the same ones.
#[derive(Debug, Clone)]
pub(super) struct Words(Vec<PossibleValue>);

impl Words {
    pub(super) fn new(words: &'static [String]) -> Self {
        Self(words.iter().map(|word| PossibleValue::new(word.as_str())).collect())
    }
}

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let has_words = !self.0.is_empty();
        has_words.then(|| Box::new(self.0.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }
}

/// Returns the words that a value of `setting` may be. Empty if it may be anything.
pub(super) fn words_of(setting: &Setting) -> Vec<String> {
    let parsers = Registry::default();
    let named: Vec<&str> = match setting.name {
        "tool_call_parser" => parsers.tool_parser_names().collect(),
        "reasoning_parser" => parsers.reasoning_parser_names().collect(),
        _ => return setting.usage.words.iter().map(|&word| word.to_owned()).collect(),
    };
    ["auto", "none"].iter().chain(&named).map(|&word| word.to_owned()).collect()
}
