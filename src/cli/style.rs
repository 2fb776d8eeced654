//! The display on a terminal. Weights and colours are used if the terminal knows them and
//! `NO_COLOR` is not set (<https://no-color.org>). Bars show progress of long work. A model's text
//! cannot send commands to the terminal.

use std::{borrow::Cow, ffi::OsStr, io::IsTerminal};

/// Whether text on one stream may be styled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    is_on: bool,
}

impl Style {
    /// Returns the style of text for `stream`.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name);
        let is_on =
            stream.is_terminal() && allows(set("NO_COLOR").as_deref(), set("TERM").as_deref());
        Self { is_on }
    }

    pub(crate) fn is_on(self) -> bool {
        self.is_on
    }

    /// Returns text that is less visible.
    pub(crate) fn dim(self, text: &str) -> Cow<'_, str> {
        self.wrap("2", text)
    }

    /// Returns text of an error.
    pub(crate) fn error(self, text: &str) -> Cow<'_, str> {
        self.wrap("1;31", text)
    }

    fn wrap<'t>(self, code: &str, text: &'t str) -> Cow<'t, str> {
        match self.is_on && !text.is_empty() {
            true => Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")),
            false => Cow::Borrowed(text),
        }
    }
}

/// Returns whether styles are allowed. An empty `NO_COLOR` counts as unset.
fn allows(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && moves(term)
}

/// Returns whether a terminal can overwrite its earlier output.
fn moves(term: Option<&OsStr>) -> bool {
    term != Some(OsStr::new("dumb"))
}

/// Returns whether standard error is a terminal that can show a bar. A pipe shows none.
pub(crate) fn shows_bars() -> bool {
    std::io::stderr().is_terminal() && moves(std::env::var_os("TERM").as_deref())
}

/// Returns `text` without control characters other than line ends and tabs, because a model's text
/// must not move the cursor or retitle the window.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    match text.contains(is_harmful) {
        true => Cow::Owned(text.replace(is_harmful, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_are_respected() {
        let os = |text| Some(OsStr::new(text));
        assert!(allows(None, None) && allows(os(""), os("xterm")));
        assert!(!allows(os("1"), os("xterm")) && !allows(None, os("dumb")));
    }

    #[test]
    fn text_commands_no_terminal() {
        assert_eq!(harmless("a\n\tü"), "a\n\tü");
        assert_eq!(harmless("a\x1b[2Jb\r\u{9b}1m"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}1m");
    }

    #[test]
    fn only_what_is_on_is_styled() {
        assert_eq!(Style { is_on: true }.dim("x"), "\x1b[2mx\x1b[0m");
        assert_eq!(Style { is_on: true }.dim(""), "");
        assert_eq!(Style { is_on: false }.error("x"), "x");
    }
}
