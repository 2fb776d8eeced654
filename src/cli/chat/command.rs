//! The commands of a conversation.

/// The text of `/help`.
pub(super) const HELP: &str = "\
commands:
  /system TEXT      instructions to the model before the conversation; without TEXT, show them
  /set NAME VALUE   change the sampling (temperature, top_p, max_tokens, seed, ...); /set shows how
  /think on|off     whether the model thinks; /think auto leaves it to the model
  /retry            answer the last question once more
  /clear            forget the conversation
  /save FILE        write the conversation to a new file, as JSON messages
  /load FILE        continue the conversation of a file
  /stats            the cost of the last answer, and how full the context is
  /help             this
  /exit             end (also Ctrl-D)
A line that ends with \\ continues in the next one, and so does text between \"\"\" and \"\"\".
A line that begins with // is sent with one slash. Ctrl-C stops an answer. The arrow keys show
earlier entries, also of earlier conversations.";

/// The names of all commands.
pub(super) const NAMES: [&str; 10] =
    ["/system", "/set", "/think", "/retry", "/clear", "/save", "/load", "/stats", "/help", "/exit"];

/// One entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A message to the model.
    Say(String),
    /// Set the system prompt, or show it.
    System(Option<String>),
    /// Set a sampling parameter, or show those that are set.
    Set(Option<(String, String)>),
    /// Let the model think, or not, or as its template has it.
    Think(Option<bool>),
    /// Answer the last question again.
    Retry,
    /// Forget the conversation.
    Clear,
    /// Write the conversation to a file.
    Save(String),
    /// Read a conversation from a file.
    Load(String),
    /// Show the cost of the last answer.
    Stats,
    /// Show the commands.
    Help,
    /// End the conversation.
    Exit,
    /// An empty line.
    Nothing,
    /// A command without its argument.
    Incomplete(&'static str),
    /// A slash and an unknown word.
    Unknown(String),
}

impl Command {
    /// Returns the command of `entry`.
    pub(super) fn parse(entry: &str) -> Self {
        let entry = entry.trim();
        if entry.is_empty() {
            return Self::Nothing;
        }
        if let Some(said) = entry.strip_prefix("//") {
            return Self::Say(format!("/{said}"));
        }
        if !entry.starts_with('/') {
            return Self::Say(entry.to_owned());
        }
        let (name, rest) = entry.split_once(char::is_whitespace).unwrap_or((entry, ""));
        let rest = rest.trim();
        let given = (!rest.is_empty()).then(|| rest.to_owned());
        match name {
            "/system" => Self::System(given),
            "/set" => match rest.split_once(char::is_whitespace) {
                Some((name, value)) => Self::Set(Some((name.to_owned(), value.trim().to_owned()))),
                None if given.is_some() => Self::Incomplete("/set NAME VALUE"),
                None => Self::Set(None),
            },
            "/think" => match rest {
                "on" => Self::Think(Some(true)),
                "off" => Self::Think(Some(false)),
                "auto" => Self::Think(None),
                _ => Self::Incomplete("/think on, off or auto"),
            },
            "/retry" => Self::Retry,
            "/clear" => Self::Clear,
            "/save" => given.map_or(Self::Incomplete("/save FILE"), Self::Save),
            "/load" => given.map_or(Self::Incomplete("/load FILE"), Self::Load),
            "/stats" => Self::Stats,
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

    #[test]
    fn commands_have_what_they_need() {
        let set = Command::Set(Some(("top_p".to_owned(), "0.5".to_owned())));
        assert_eq!(Command::parse("/set top_p  0.5"), set);
        assert_eq!(Command::parse("/set"), Command::Set(None));
        assert_eq!(Command::parse("/set top_p"), Command::Incomplete("/set NAME VALUE"));
        assert_eq!(Command::parse("/save"), Command::Incomplete("/save FILE"));
        assert_eq!(Command::parse("/load my talk.json"), Command::Load("my talk.json".to_owned()));
    }

    #[test]
    fn every_command_is_known_and_in_the_help() {
        for name in NAMES {
            assert!(!matches!(Command::parse(name), Command::Unknown(_)), "{name}");
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
