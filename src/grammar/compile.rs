//! Each format as a grammar of llguidance.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use playhouse_actors::{
    logic::request::structured_output::{OutputFormat, StructuredOutput},
    ports::GrammarError,
};
use serde_json::json;

use super::{
    ascii_classes::lark_with_ascii_classes,
    gbnf, json, lark,
    size::{self, Size},
    structural_tag,
    vocabulary::Vocabulary,
};

/// Most bytes of a schema, a grammar, or all choices.
const MAX_BYTES: usize = 1 << 20;
/// Most choices.
const MAX_CHOICES: usize = 10_000;

/// Returns the grammar of a format, not compiled yet. With `closes`, schemas are closed where their
/// parts can be read alone.
///
/// # Errors
/// [`GrammarError`] names what is wrong.
pub(super) fn grammar(
    output: &StructuredOutput,
    closes: bool,
    vocabulary: &Vocabulary,
) -> Result<TopLevelGrammar, GrammarError> {
    match &output.format {
        OutputFormat::JsonSchema(schema) => {
            limited("the JSON schema", schema, MAX_BYTES)?;
            let schema = json::parse("the JSON schema", schema)?;
            let schema = json::prepared(schema, output, closes, &mut Size::default())?;
            Ok(TopLevelGrammar::from_json_schema(schema))
        }
        OutputFormat::JsonObject => {
            let schema = json!({"type": "object"});
            let schema = json::prepared(schema, output, closes, &mut Size::default())?;
            Ok(TopLevelGrammar::from_json_schema(schema))
        }
        OutputFormat::Regex(pattern) => {
            size::check_regex(pattern)?;
            Ok(from_lark(format!("start: {}", lark::regex(unanchored(pattern)))))
        }
        OutputFormat::Choice(choices) => choice(choices),
        OutputFormat::Grammar(text) => {
            limited("the grammar", text, MAX_BYTES)?;
            if text.trim().is_empty() {
                return Err(GrammarError::Invalid("the grammar is empty".to_owned()));
            }
            Ok(from_lark(to_lark(text, &mut Size::default())?))
        }
        OutputFormat::StructuralTag(text) => {
            limited("the structural tag", text, MAX_BYTES)?;
            structural_tag::grammar(text, output, closes, vocabulary)
        }
    }
}

/// Returns a grammar in either notation as a Lark grammar with ASCII classes, and adds it to
/// `size`.
///
/// # Errors
/// [`GrammarError`] when it is malformed, or would take too long.
pub(super) fn to_lark(text: &str, size: &mut Size) -> Result<String, GrammarError> {
    let lark = match gbnf::is_gbnf(text) {
        true => gbnf::to_lark(text)?,
        false => text.to_owned(),
    };
    size.add_lark(&lark)?;
    let bodies = size::regex_bodies(&lark)?;
    Ok(lark_with_ascii_classes(&lark, &bodies).into_owned())
}

/// Returns llguidance's message about a rejected grammar as an error for the client.
pub(super) fn refusal(message: &str) -> GrammarError {
    let message = message.replace("\n<non-verbose/>", "");
    let is_size = ["too big", "too large", "limit", "exceeded"];
    match is_size.iter().any(|word| message.contains(word)) {
        true => GrammarError::TooLarge(message),
        false => GrammarError::Invalid(message),
    }
}

fn choice(choices: &[String]) -> Result<TopLevelGrammar, GrammarError> {
    if choices.is_empty() {
        return Err(GrammarError::Invalid("choice must hold at least one string".to_owned()));
    }
    let bytes: usize = choices.iter().map(String::len).sum();
    if choices.len() > MAX_CHOICES || bytes > MAX_BYTES {
        return Err(GrammarError::TooLarge(format!(
            "{} choices of {bytes} bytes; at most {MAX_CHOICES} of {MAX_BYTES} bytes together are \
             allowed",
            choices.len()
        )));
    }
    let literals: Vec<String> = choices.iter().map(|choice| lark::quoted(choice)).collect();
    // All choices form one terminal. Otherwise a choice could hide another that begins with it.
    Ok(from_lark(format!("start: CHOICE\nCHOICE: {}", literals.join(" | "))))
}

pub(super) fn from_lark(text: String) -> TopLevelGrammar {
    TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(text))
}

/// Returns the pattern without its anchors. They are not needed, because a match spans the whole
/// output, and the library takes no anchors.
pub(super) fn unanchored(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let before = pattern.strip_suffix('$');
    // An escaped dollar is a character.
    let is_anchor =
        |before: &&str| before.chars().rev().take_while(|&c| c == '\\').count() % 2 == 0;
    before.filter(is_anchor).unwrap_or(pattern)
}

/// Rejects a text that is longer than `max_bytes`.
///
/// # Errors
/// [`GrammarError::TooLarge`] if it is longer.
pub(super) fn limited(what: &str, text: &str, max_bytes: usize) -> Result<(), GrammarError> {
    match text.len() {
        bytes if bytes > max_bytes => Err(GrammarError::TooLarge(format!(
            "{what} has {bytes} bytes; at most {max_bytes} are allowed"
        ))),
        _ => Ok(()),
    }
}
