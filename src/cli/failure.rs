//! The failure of a command: one line with the causes, one with advice, and an exit code.

use std::{error::Error, io, process::ExitCode};

use super::{output, style::Style};
use crate::api::RequestError;
use crate::{
    config::ConfigError,
    engine::{StartError, replay::LoadForReplayError},
    hub::HubError,
    server::ServerError,
    text::TextLoadError,
};

/// Wrong usage or configuration.
const EXIT_USAGE: u8 = 2;
/// The work failed.
const EXIT_FAILED: u8 = 1;
/// The engine's supervisor gave up, or a server's threads are frozen (`EX_SOFTWARE` of sysexits.h).
pub(crate) const EXIT_GAVE_UP: u8 = 70;
/// The link of an engine process is broken (`EX_PROTOCOL` of sysexits.h).
pub(crate) const EXIT_LINK: u8 = 76;
/// A task panicked, as Rust's own exit code says.
pub(crate) const EXIT_PANIC: u8 = 101;
/// 128 + SIGINT, as in shells.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
/// 128 + SIGTERM.
pub(crate) const EXIT_TERMINATED: u8 = 143;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The settings are wrong.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// An entry of a conversation is invalid, or names a file that cannot be used.
    #[error("{0}")]
    Entry(String),
    /// The log's level is not a level.
    #[error("log.level: {0}")]
    LogLevel(String),
    /// The engine did not start.
    #[error("the engine did not start")]
    Start(#[source] Box<StartError>),
    /// A model by name could not be found or fetched.
    #[error(transparent)]
    Hub(Box<HubError>),
    /// The tokenizer could not be loaded.
    #[error("the tokenizer could not be loaded")]
    Text(#[source] Box<TextLoadError>),
    /// The tokenizer rejected a text.
    #[error("the text could not be tokenized")]
    Tokenize(#[from] crate::api::TextError),
    /// A request was rejected or could not be finished.
    #[error("the request was refused")]
    Request(#[from] RequestError),
    /// A request ended with an error.
    #[error("the request failed: {0}")]
    Ended(String),
    /// A running server cannot be talked to.
    #[error("{0}")]
    Unreachable(String),
    /// A measurement could not be made.
    #[error("{0}")]
    Measure(String),
    /// A replay differs from its recording, or the recording cannot be read.
    #[error("{0}")]
    Replay(String),
    /// The model of a replay could not be loaded.
    #[error("the recording cannot be computed again")]
    ReplayModel(#[from] LoadForReplayError),
    /// The HTTP server cannot serve. All its errors come before it serves.
    #[error("the server did not start")]
    Server(#[from] ServerError),
    /// The metrics recorder could not be installed.
    #[error("the metrics could not be set up")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// A file or stream could not be read or written.
    #[error("{what}")]
    Io {
        /// The attempted action.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The engine's supervisor gave up.
    #[error("the engine's supervisor gave up: actors died faster than they could be replaced")]
    GaveUp,
    /// The link of an engine process is broken.
    #[error("{0}")]
    Link(String),
    /// The task of an engine process panicked.
    #[error("{0}")]
    Panicked(String),
    /// A server was stopped, and requests were still open when their time was over.
    #[error("open requests cut off at the end of shutdown_timeout: {requests}")]
    CutOff {
        /// Number of those requests.
        requests: usize,
    },
    /// Requests of a batch were rejected or failed.
    #[error("{failed} of {total} requests did not succeed; their lines in the output say why")]
    Batch {
        /// Number of those requests.
        failed: usize,
        /// Number of all requests.
        total: usize,
    },
    /// SIGINT.
    #[error("interrupted")]
    Interrupted,
    /// SIGTERM.
    #[error("terminated")]
    Terminated,
    /// The reader of the output has closed it, which is no failure.
    #[error("the output was closed")]
    OutputClosed,
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::Start(Box::new(error))
    }
}

impl From<HubError> for CliError {
    fn from(error: HubError) -> Self {
        Self::Hub(Box::new(error))
    }
}

impl From<TextLoadError> for CliError {
    fn from(error: TextLoadError) -> Self {
        Self::Text(Box::new(error))
    }
}

impl CliError {
    /// Returns a [`CliError::Io`] about `what`, or for a closed pipe [`CliError::OutputClosed`].
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Io { what, source },
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) | Self::LogLevel(_) => EXIT_USAGE,
            Self::GaveUp => EXIT_GAVE_UP,
            Self::Link(_) => EXIT_LINK,
            Self::Panicked(_) => EXIT_PANIC,
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Terminated => EXIT_TERMINATED,
            Self::OutputClosed => 0,
            _ => EXIT_FAILED,
        }
    }

    /// Returns whether the error concerns one entry of a conversation, which can continue.
    pub(crate) fn is_about_one_entry(&self) -> bool {
        matches!(self, Self::Request(_) | Self::Ended(_) | Self::Entry(_))
    }

    /// Returns advice for the operator.
    fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Self::Config(_) => {
                "`playhouse config` shows all settings and where each value comes from"
            }
            Self::Usage(_) => {
                "`playhouse help` and `playhouse help COMMAND` show the commands and flags"
            }
            Self::Entry(_) => "/help shows the commands",
            Self::LogLevel(_) => {
                "use error, warn, info, debug, trace or off; or for parts of the program, separated by \
                 commas, TARGET=LEVEL as in info,playhouse=debug"
            }
            Self::Start(error) if matches!(**error, StartError::NoModel(_)) => {
                "give the folder of a Hugging Face model, its name as org/name, or none for the \
                 demo model"
            }
            // The error itself says what to do.
            Self::Start(error) if matches!(**error, StartError::Hub(_)) => return None,
            Self::Start(error) if matches!(**error, StartError::Panicked(_)) => {
                "that is a bug: please report it, with the output of `playhouse collect-env`"
            }
            Self::Start(_) | Self::Text(_) => {
                "`playhouse config` shows the settings the engine was started with, and `-m FOLDER` \
                 chooses another model"
            }
            Self::Request(
                RequestError::ContextLength { .. } | RequestError::TextTooLong { .. },
            ) => {
                "shorten the text, ask for fewer --max-tokens, or raise --max-model-len if it was \
                 lowered; in a conversation, /clear forgets what was said"
            }
            Self::Request(RequestError::Unservable { .. }) => {
                "--kv-cache-memory-bytes gives the cache more memory"
            }
            Self::Server(_) => "`playhouse serve --help` has all flags with their defaults",
            Self::GaveUp => "the log above says which actor died and why; please report it",
            Self::CutOff { .. } => "a longer --shutdown-timeout gives requests more time to end",
            _ => return None,
        })
    }

    /// Prints the error and returns the exit code of the process.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::OutputClosed | Self::Interrupted | Self::Terminated) {
            let style = Style::of(&io::stderr());
            output::tell(format_args!("{} {}", style.error("error:"), with_causes(self)));
            if let Some(advice) = self.advice() {
                output::tell(format_args!("{} {advice}", style.dim("help:")));
            }
        }
        ExitCode::from(self.exit_code())
    }
}

/// Returns the error and its causes in one line, without causes that an outer error already
/// includes.
fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_stand_in_one_line_and_only_once() {
        let source = io::Error::other("disk on fire");
        let error = CliError::Io { what: "cannot read prompt.txt".to_owned(), source };
        assert_eq!(with_causes(&error), "cannot read prompt.txt: disk on fire");
        let error = CliError::from(StartError::NoModel("nowhere".into()));
        assert!(with_causes(&error).starts_with("the engine did not start: no model at nowhere"));
    }

    #[test]
    fn each_way_to_end_a_server_has_its_exit_code() {
        assert_eq!(CliError::CutOff { requests: 3 }.exit_code(), EXIT_FAILED);
        assert_eq!(CliError::GaveUp.exit_code(), EXIT_GAVE_UP);
        assert_eq!(CliError::Interrupted.exit_code(), EXIT_INTERRUPTED);
        assert_eq!(CliError::Terminated.exit_code(), EXIT_TERMINATED);
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let error = CliError::io("writing")(io::ErrorKind::BrokenPipe.into());
        assert_eq!(error.exit_code(), 0);
        let error = CliError::io("writing")(io::ErrorKind::StorageFull.into());
        assert_eq!(error.exit_code(), EXIT_FAILED);
    }
}
