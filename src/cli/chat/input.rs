//! Where a conversation's lines come from: an editor on a terminal, plain lines in a pipe.

use std::io;

use rustyline::{DefaultEditor, error::ReadlineError};
use tokio::sync::mpsc;

use crate::cli::CliError;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line.
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    /// Ctrl-D, or the pipe's end.
    End,
}

/// A source of lines.
pub(super) enum Input {
    /// With editing and history.
    Terminal(Box<DefaultEditor>),
    /// As they come.
    Piped(mpsc::Receiver<io::Result<String>>),
}

impl Input {
    /// The terminal that standard input is.
    pub(super) fn terminal() -> Result<Self, CliError> {
        Ok(Self::Terminal(Box::new(DefaultEditor::new().map_err(editor_error)?)))
    }

    /// The pipe or file that standard input is. Read on a thread of its own, so that Ctrl-C is
    /// noticed while nothing comes.
    pub(super) fn piped() -> Self {
        let (lines, received) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in io::stdin().lines() {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self::Piped(received)
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> Result<Line, CliError> {
        match self {
            Self::Terminal(editor) => tokio::task::block_in_place(|| edited(editor)),
            Self::Piped(lines) => tokio::select! {
                line = lines.recv() => match line {
                    Some(Ok(text)) => Ok(Line::Text(text)),
                    Some(Err(error)) => Err(CliError::io("cannot read standard input")(error)),
                    None => Ok(Line::End),
                },
                _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
            },
        }
    }
}

fn edited(editor: &mut DefaultEditor) -> Result<Line, CliError> {
    match editor.readline("> ") {
        Ok(text) => {
            editor.add_history_entry(&text).map_err(editor_error)?;
            Ok(Line::Text(text))
        }
        Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
        Err(ReadlineError::Eof) => Ok(Line::End),
        Err(error) => Err(editor_error(error)),
    }
}

fn editor_error(error: ReadlineError) -> CliError {
    CliError::io("cannot read the terminal")(io::Error::other(error))
}
