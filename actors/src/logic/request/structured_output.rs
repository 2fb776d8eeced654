//! What an output has to look like: vLLM's `StructuredOutputsParams`.

use serde::{Deserialize, Serialize};

use crate::error::RequestError;

/// A format, and how strictly JSON is written. Equal values compile to equal grammars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StructuredOutput {
    /// The format.
    pub format: OutputFormat,
    /// Whether JSON is compact: no white space but at most one space behind a comma or a colon.
    /// Otherwise any, within bounds. `None`: as the engine's setting of this name says.
    pub disable_any_whitespace: Option<bool>,
    /// Objects have no properties but those of the schema, also where it says nothing of others.
    pub disable_additional_properties: bool,
}

/// One way to say what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutputFormat {
    /// A value that this JSON schema allows, as its JSON text.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// A text that this regular expression matches from end to end.
    Regex(String),
    /// One of these.
    Choice(Vec<String>),
    /// A text of this grammar, in Lark's form or in GBNF.
    Grammar(String),
    /// Free text with structured parts between tags, as its JSON text.
    StructuralTag(String),
}

impl StructuredOutput {
    /// Refuses what is seen at a glance to allow nothing. The rest shows when it is compiled.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] names the field and what is accepted.
    pub fn validate(&self) -> Result<(), RequestError> {
        match &self.format {
            OutputFormat::Choice(choices) if choices.is_empty() => {
                Err(RequestError::invalid("structured_outputs.choice", "[]", "at least one choice"))
            }
            OutputFormat::Grammar(text) if text.trim().is_empty() => {
                Err(RequestError::invalid("structured_outputs.grammar", "\"\"", "a grammar"))
            }
            _ => Ok(()),
        }
    }
}

impl From<OutputFormat> for StructuredOutput {
    fn from(format: OutputFormat) -> Self {
        Self { format, disable_any_whitespace: None, disable_additional_properties: false }
    }
}
