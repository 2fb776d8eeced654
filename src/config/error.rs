//! Faults of a configuration, for the operator.

use std::{io, path::PathBuf};

use super::{key::Key, origin::Origin};

/// The reason why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: not valid TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// An unknown key.
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
    /// An unknown `PLAYHOUSE_…` variable.
    #[error("unknown environment variable {name}{}", did_you_mean(closest))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable most like it.
        closest: Option<String>,
    },
    /// A value that its key does not accept.
    #[error(transparent)]
    Invalid(Box<InvalidValue>),
    /// Two values of one setting from one source: one under its name, one under an earlier name.
    #[error("{key} is set twice: by {first} and by {second}")]
    SetTwice {
        /// The setting.
        key: Key,
        /// The source of the first value.
        first: Origin,
        /// The source of the second value.
        second: Origin,
    },
}

/// A value that its key does not accept.
#[derive(Debug, thiserror::Error)]
#[error("{key} = {value} (from {origin}): {reason}")]
pub struct InvalidValue {
    /// The key.
    pub key: Key,
    /// The value as given.
    pub value: String,
    /// Its source.
    pub origin: Origin,
    /// The accepted values.
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

/// A setting whose value is out of range, or contradicts another setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} = {value}: must be {accepted}")]
pub struct InvalidSetting {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The accepted values.
    pub accepted: String,
}
