//! The settings of the log.

use serde::{Deserialize, Serialize};

use super::quantity;

/// What is written to standard error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,playhouse=debug`.
    pub level: String,
    /// Seconds between two lines about throughput and queues while the server is busy; 0: none.
    #[serde(deserialize_with = "quantity::number")]
    pub stats_interval_s: f64,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), stats_interval_s: 10.0 }
    }
}
