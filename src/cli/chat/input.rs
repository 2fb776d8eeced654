//! The source of a conversation's entries: an editor on a terminal, plain lines in a pipe.

use std::io;

use rustyline::{
    Config, Context, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use tokio::sync::mpsc;

use super::{
    command::NAMES,
    entry,
    history::{ENTRIES_MAX, History},
};
use crate::cli::{CliError, output};

/// An event of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An entry of one or several lines.
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D, or the pipe's end.
    End,
}

/// A source of entries.
pub(super) enum Input {
    /// With editing and history.
    Terminal(Box<Terminal>),
    /// Lines in order of arrival.
    Piped(mpsc::Receiver<io::Result<String>>),
}

/// An editor, and the file of its entries.
pub(super) struct Terminal {
    editor: Editor<Typing, MemHistory>,
    history: Option<History>,
}

impl Input {
    /// Returns the terminal of standard input. `history` is the file of earlier entries, if they
    /// are kept.
    pub(super) fn terminal(history: Option<History>) -> Result<Self, CliError> {
        let config = Config::builder().auto_add_history(false).max_history_size(ENTRIES_MAX);
        let config = config.map_err(editor_error)?.build();
        let mut editor = Editor::with_history(config, MemHistory::new()).map_err(editor_error)?;
        editor.set_helper(Some(Typing));
        for entry in history.iter().flat_map(History::entries) {
            editor.add_history_entry(entry).map_err(editor_error)?;
        }
        Ok(Self::Terminal(Box::new(Terminal { editor, history })))
    }

    /// Returns the pipe or file of standard input. A thread of its own reads it, so that Ctrl-C
    /// works while no input arrives.
    ///
    /// # Errors
    /// When the system cannot start this thread.
    pub(super) fn piped() -> Result<Self, CliError> {
        let (lines, received) = mpsc::channel(1);
        let reader = std::thread::Builder::new().name("playhouse-input".to_owned());
        let read = move || {
            for line in io::stdin().lines() {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        };
        reader.spawn(read).map_err(CliError::io("cannot start a thread to read the input"))?;
        Ok(Self::Piped(received))
    }

    /// Returns the next entry.
    pub(super) async fn next(&mut self) -> Result<Line, CliError> {
        match self {
            Self::Terminal(terminal) => tokio::task::block_in_place(|| terminal.next()),
            Self::Piped(lines) => tokio::select! {
                line = piped_entry(lines) => line,
                _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
            },
        }
    }
}

impl Terminal {
    fn next(&mut self) -> Result<Line, CliError> {
        match self.editor.readline("> ") {
            Ok(typed) => {
                self.keep(&typed)?;
                Ok(Line::Text(entry::complete(&typed).unwrap_or_else(|| entry::cut_off(&typed))))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(editor_error(error)),
        }
    }

    /// Keeps `typed` for the arrow keys, in later conversations too.
    fn keep(&mut self, typed: &str) -> Result<(), CliError> {
        let is_new = self.editor.add_history_entry(typed).map_err(editor_error)?;
        if let Some(history) = self.history.take_if(|_| is_new) {
            match history.add(typed) {
                Ok(()) => self.history = Some(history),
                Err(error) => {
                    output::tell(format_args!("(your entries are not kept: {error})"));
                }
            }
        }
        Ok(())
    }
}

async fn piped_entry(lines: &mut mpsc::Receiver<io::Result<String>>) -> Result<Line, CliError> {
    let mut typed = String::new();
    loop {
        match lines.recv().await {
            Some(Ok(line)) => typed.push_str(&line),
            Some(Err(error)) => return Err(CliError::io("cannot read standard input")(error)),
            None if typed.is_empty() => return Ok(Line::End),
            None => return Ok(Line::Text(entry::cut_off(&typed))),
        }
        match entry::complete(&typed) {
            Some(entry) => return Ok(Line::Text(entry)),
            None => typed.push('\n'),
        }
    }
}

/// The editor's further keys: Enter begins a new line in an incomplete entry, and Tab completes
/// commands.
struct Typing;

impl Helper for Typing {}
impl Highlighter for Typing {}
impl Hinter for Typing {
    type Hint = String;
}

impl Validator for Typing {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match entry::complete(typed.input()) {
            Some(_) => ValidationResult::Valid(None),
            None => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or(line);
        let fitting = NAMES.iter().filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, fitting.map(|name| format!("{name} ")).collect()))
    }
}

fn editor_error(error: ReadlineError) -> CliError {
    CliError::io("cannot read the terminal")(io::Error::other(error))
}
