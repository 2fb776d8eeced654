//! What a line of a conversation means.

/// What can be typed.
pub(super) const HELP: &str = "\
commands:
  /system TEXT  what the model is told before the conversation; without TEXT, show it
  /clear        forget the conversation
  /exit         end (also Ctrl-D)
  /help         this
A line that begins with // is said with one slash. Ctrl-C stops an answer.";

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// To the model.
    Say(String),
    /// Set the system prompt, or show it.
    System(Option<String>),
    /// Forget the conversation.
    Clear,
    /// Show what can be typed.
    Help,
    /// End.
    Exit,
    /// An empty line.
    Nothing,
    /// A slash and a word that means nothing.
    Unknown(String),
}

impl Command {
    /// What `line` means.
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        if let Some(said) = line.strip_prefix("//") {
            return Self::Say(format!("/{said}"));
        }
        if !line.starts_with('/') {
            return Self::Say(line.to_owned());
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match name {
            "/system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
            "/clear" => Self::Clear,
            "/help" | "/?" => Self::Help,
            "/exit" | "/quit" => Self::Exit,
            _ => Self::Unknown(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_said_unless_they_are_commands() {
        assert_eq!(Command::parse(" hello \n"), Command::Say("hello".to_owned()));
        assert_eq!(Command::parse("//etc"), Command::Say("/etc".to_owned()));
        assert_eq!(Command::parse("  "), Command::Nothing);
        assert_eq!(Command::parse("/system be brief"), Command::System(Some("be brief".into())));
        assert_eq!(Command::parse("/system"), Command::System(None));
        assert_eq!(Command::parse("/quit"), Command::Exit);
        assert_eq!(Command::parse("/quiet now"), Command::Unknown("/quiet".to_owned()));
    }
}
