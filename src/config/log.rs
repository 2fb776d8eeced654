//! The settings of the log.

use super::{
    check::any, choice::LogFormat, error::InvalidSetting, setting::Usage, table::settings,
};

settings! {
    /// The lines that go to standard error.
    pub struct LogSettings in log {
        "":
        /// error, warn, info, debug, trace, or directives, for example "info,playhouse=debug".
        level: String = "info".to_owned(), plain, any,
            Usage::new(
                "LEVEL",
                "error, warn, info, debug, trace, or directives, for example info,playhouse=debug",
            ).default("")
                .words(&["error", "warn", "info", "debug", "trace"]);

        "Server":
        /// text, or json: one object a line, with timestamp, level, target and fields.
        format: LogFormat = LogFormat::Text, plain, any,
            Usage::new("WORD", "Form of a line: text, json")
                .words(&["text", "json"]);
        /// Seconds between two lines about throughput and queues while the server is busy; 0: none.
        stats_interval_secs: f64 = 10.0, number, any,
            Usage::new(
                "SECONDS",
                "Seconds between two lines about throughput while the server is busy; 0: none",
            ).was("stats_interval_s");
    }
}

impl LogSettings {
    /// Rejects values that are out of range.
    ///
    /// # Errors
    /// The first rejected setting, with the values that would be accepted.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}
