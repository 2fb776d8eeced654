//! What is wrong with a configuration, told to the operator.

use std::{io, path::PathBuf};

use super::{key::Key, origin::Origin};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: not valid TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A key that means nothing.
    #[error("{}:{line}: unknown key {key}{}", path.display(), did_you_mean(closest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The known key most like it.
        closest: Option<String>,
    },
    /// A `PLAYHOUSE_…` variable that means nothing.
    #[error("unknown environment variable {name}{}", did_you_mean(closest))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable most like it.
        closest: Option<String>,
    },
    /// A value that its key does not take.
    #[error(transparent)]
    Invalid(Box<InvalidValue>),
    /// Two values of one setting from one source: under its name and that of an earlier version.
    #[error("{key} is set twice: by {first} and by {second}")]
    SetTwice {
        /// The setting.
        key: Key,
        /// Where the first value stands.
        first: Origin,
        /// Where the second value stands.
        second: Origin,
    },
}

/// A value that its key does not take.
#[derive(Debug, thiserror::Error)]
#[error("{key} = {value} (from {origin}): {reason}")]
pub struct InvalidValue {
    /// The key.
    pub key: Key,
    /// The value as given.
    pub value: String,
    /// Who gave it.
    pub origin: Origin,
    /// What would be accepted.
    pub reason: String,
}

impl From<InvalidValue> for ConfigError {
    fn from(invalid: InvalidValue) -> Self {
        Self::Invalid(Box::new(invalid))
    }
}

fn did_you_mean(closest: &Option<String>) -> String {
    match closest {
        Some(closest) => format!("; did you mean {closest}?"),
        None => "; `playhouse config` lists all there are".to_owned(),
    }
}

/// A setting whose value is out of range, or does not go with another's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} = {value}: must be {accepted}")]
pub struct InvalidSetting {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What would be accepted.
    pub accepted: String,
}
