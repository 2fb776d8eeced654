//! The log's filter: a level, or levels of parts of the program.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use super::CliError;

/// Returns the filter of a `log.level`.
///
/// # Errors
/// [`CliError::LogLevel`] if the text is neither. A word that is no level would count as a part of
/// the program. Then everything of that part would be logged, and nothing of all others.
pub(super) fn parse(text: &str) -> Result<EnvFilter, CliError> {
    let unknown = text.split(',').map(str::trim).find(|directive| is_unknown(directive));
    if let Some(word) = unknown {
        return Err(CliError::LogLevel(format!("{word:?} is no level")));
    }
    let filter = EnvFilter::builder().parse(text);
    filter.map_err(|error| CliError::LogLevel(error.to_string()))
}

fn is_unknown(directive: &str) -> bool {
    let is_word = !directive.is_empty() && !directive.contains(['=', '[']);
    is_word && directive.parse::<LevelFilter>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_accepted() {
        for text in [
            "info",
            "WARN",
            "off",
            "0",
            "",
            "info,playhouse=debug",
            "playhouse_actors::shell=trace, warn",
            "warn,playhouse[step{epoch=1}]=debug",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused_by_name() {
        for (text, word) in [
            ("nonsense", "nonsense"),
            ("info,playhouse", "playhouse"),
            ("inof", "inof"),
            ("warn, 7", "7"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("log.level: {word:?} is no level"));
        }
        assert!(parse("=loud=").unwrap_err().to_string().starts_with("log.level: "));
    }
}
