//! A text that is never shown.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text whose `Debug` form and serialized form are `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns a secret without the white space around it.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// Returns the text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("***")
    }
}

/// Reads a secret. An empty text is none.
pub(super) fn some_secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    let secret = Secret::new(String::deserialize(from)?);
    Ok(Some(secret).filter(|secret| !secret.0.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new(" hf_1\n");
        assert_eq!(secret.reveal(), "hf_1");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_value(&secret).unwrap(), "***");
    }
}
