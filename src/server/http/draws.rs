//! The facts of an answer that its request does not determine.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::server::state::unix_seconds;

/// A name and a time, drawn once for each answer. An answer that is written again takes the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Draws {
    /// 32 hexadecimal digits that no client can guess.
    pub(in crate::server) name: String,
    /// Seconds since 1970.
    pub(in crate::server) created: u64,
}

/// New draws.
impl Default for Draws {
    fn default() -> Self {
        Self { name: Uuid::new_v4().simple().to_string(), created: unix_seconds() }
    }
}
