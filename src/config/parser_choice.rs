//! The setting that chooses a parser.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The parser of a model's answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ParserChoice {
    /// The one that the model's chat template suggests, if it suggests any.
    #[default]
    Auto,
    /// None.
    None,
    /// The one of this name.
    Named(String),
}

impl ParserChoice {
    /// Returns the choice that is written like this in settings.
    #[must_use]
    pub fn of(written: &str) -> Self {
        match written {
            "auto" => Self::Auto,
            "none" => Self::None,
            name => Self::Named(name.to_owned()),
        }
    }
}

impl fmt::Display for ParserChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Named(name) => name,
        })
    }
}

impl Serialize for ParserChoice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ParserChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::of(&String::deserialize(from)?))
    }
}
