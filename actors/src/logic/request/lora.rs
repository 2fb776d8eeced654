//! The adapter of a request.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names the content of an adapter's files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct AdapterFingerprint(pub [u8; 32]);

/// The adapter that a request asks for. It belongs to the ground state: with the same files, the
/// adapter's weights can be loaded again after any fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LoraRequest {
    /// Its name, by which clients choose it.
    pub name: String,
    /// Its folder, as it was given.
    pub path: String,
    /// 0 for the first content that this name and path had in this process, and 1 for all others.
    /// A block's hash then has the fingerprint, which keeps cached prefixes of different contents
    /// apart.
    pub version: u32,
    /// The content of its files.
    pub fingerprint: AdapterFingerprint,
}

impl fmt::Display for AdapterFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AdapterFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdapterFingerprint({self})")
    }
}

#[cfg(any(test, feature = "testing"))]
impl LoraRequest {
    /// Returns an adapter of a test.
    #[must_use]
    pub fn for_test(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: format!("/{name}"),
            version: 0,
            fingerprint: AdapterFingerprint::default(),
        }
    }
}
