//! The display of an answer while it arrives.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use terminal_size::{Width, terminal_size_of};

use super::markdown::Markdown;

use crate::cli::{
    CliError, output,
    style::{Style, harmless, shows_bars},
};

/// Longest time without output before a message is shown.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// Shows answers: on a terminal with the thoughts before them, dimmed; in a pipe without.
pub(super) struct Display {
    style: Style,
    is_terminal: bool,
    is_silent: bool,
    is_thinking: bool,
    /// The text of the answer, on a terminal.
    markdown: Markdown,
    /// Whether any of the answer is shown. Nothing may be drawn into it.
    has_shown: bool,
    /// The message that the prompt is being computed.
    wait: Option<ProgressBar>,
}

impl Display {
    /// Returns a display on standard output.
    pub(super) fn new() -> Self {
        let stdout = io::stdout();
        let (style, is_terminal) = (Style::of(&stdout), stdout.is_terminal());
        let (is_silent, is_thinking, has_shown) = (false, false, false);
        let width = terminal_size_of(&stdout).map(|(Width(columns), _)| usize::from(columns));
        let markdown = Markdown::new(width, style.is_on());
        Self { style, is_terminal, is_silent, is_thinking, markdown, has_shown, wait: None }
    }

    /// Returns a display that shows nothing.
    pub(super) fn silent() -> Self {
        Self { is_silent: true, is_terminal: false, ..Self::new() }
    }

    /// Shows that nothing has arrived for [`QUIET`].
    pub(super) fn wait(&mut self) {
        if self.has_shown {
            return;
        }
        if self.wait.is_none() && self.is_terminal && shows_bars() {
            let style = ProgressStyle::with_template("{spinner} reading the prompt, {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(100));
            self.wait = Some(bar);
        }
    }

    /// Removes that message, because output has arrived.
    pub(super) fn came(&mut self) {
        if let Some(bar) = self.wait.take() {
            bar.finish_and_clear();
        }
    }

    pub(super) fn thought(&mut self, text: &str) -> Result<(), CliError> {
        if !self.is_terminal {
            return Ok(());
        }
        if !self.is_thinking && !self.style.is_on() {
            output::show("(thinking) ")?;
        }
        self.is_thinking = true;
        self.has_shown = true;
        output::show(&self.style.dim(&harmless(text)))
    }

    pub(super) fn content(&mut self, text: &str) -> Result<(), CliError> {
        if self.is_silent {
            return Ok(());
        }
        self.has_shown = true;
        self.end_thoughts()?;
        match self.is_terminal {
            true => output::show(&self.markdown.push(&harmless(text))),
            false => output::show(text),
        }
    }

    /// Ends the answer.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        self.came();
        if self.is_terminal {
            output::show(&self.markdown.end())?;
        }
        self.end_thoughts()
    }

    /// Ends the line of an answer that broke off, so that an error has a line of its own.
    pub(super) fn end_line(&mut self) -> Result<(), CliError> {
        match std::mem::take(&mut self.has_shown) {
            true => output::show("\n"),
            false => Ok(()),
        }
    }

    fn end_thoughts(&mut self) -> Result<(), CliError> {
        match std::mem::take(&mut self.is_thinking) {
            true => output::show("\n\n"),
            false => Ok(()),
        }
    }
}
