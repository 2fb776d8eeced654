//! The structure of an output: vLLM's `StructuredOutputsParams`.

use serde::{Deserialize, Serialize};

use crate::error::RequestError;

/// A format, and how strictly JSON is written. Equal values compile to equal grammars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StructuredOutput {
    /// The format.
    pub format: OutputFormat,
    /// Whether JSON is compact: no white space except at most one space after a comma or a colon.
    /// Otherwise any white space is allowed, within bounds. `None`: the engine's setting of this
    /// name decides.
    pub disable_any_whitespace: Option<bool>,
    /// Whether objects have only the properties of the schema, even where the schema does not
    /// forbid others.
    pub disable_additional_properties: bool,
}

/// The format of an output.
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
    /// Free text with structured parts between tags; this is its JSON text.
    StructuralTag(String),
}

impl StructuredOutput {
    /// Rejects formats that obviously allow nothing. Other errors are found when the format is
    /// compiled.
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
