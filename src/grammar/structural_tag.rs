//! Structural tags: free text with structured parts between tags.
//!
//! Two notations: OpenAI's `{"structures": [{begin, schema, end}], "triggers": […]}`, and
//! xgrammar's newer `{"type": "structural_tag", "format": {…}}`, whose formats nest.

use std::fmt::Write;

use indexmap::IndexMap;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use playhouse_actors::{logic::request::structured_output::StructuredOutput, ports::GrammarError};
use serde::Deserialize;
use serde_json::Value;

use super::{
    compile, json, lark,
    size::{self, Size},
    vocabulary::Vocabulary,
};

/// Most bytes of a literal text.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Free text of any length.
const TEXT: &str = r"/(?s:.*)/";

/// The older notation.
#[derive(Deserialize)]
struct Structures {
    structures: Vec<Structure>,
    triggers: Vec<String>,
}

#[derive(Deserialize)]
struct Structure {
    begin: String,
    schema: Value,
    end: String,
}

/// A part of an output in the newer notation.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    ConstString {
        value: String,
    },
    JsonSchema {
        json_schema: Value,
    },
    Regex {
        pattern: String,
    },
    Grammar {
        grammar: String,
    },
    AnyText {
        #[serde(default)]
        excludes: Vec<String>,
    },
    Sequence {
        elements: Vec<Format>,
    },
    Or {
        elements: Vec<Format>,
    },
    Tag(Tag),
    TriggeredTags {
        triggers: Vec<String>,
        tags: Vec<Tag>,
        #[serde(default)]
        at_least_one: bool,
        #[serde(default)]
        stop_after_first: bool,
    },
    TagsWithSeparator {
        tags: Vec<Tag>,
        separator: String,
        #[serde(default)]
        at_least_one: bool,
        #[serde(default)]
        stop_after_first: bool,
    },
}

#[derive(Deserialize)]
struct Tag {
    begin: String,
    content: Box<Format>,
    end: String,
}

/// Returns the grammar of a structural tag in its JSON text.
///
/// # Errors
/// [`GrammarError`] names what is wrong or not supported.
pub(super) fn grammar(
    text: &str,
    output: &StructuredOutput,
    closes: bool,
    vocabulary: &Vocabulary,
) -> Result<TopLevelGrammar, GrammarError> {
    let value = json::parse("the structural tag", text)?;
    let mut writer = Writer {
        output,
        closes,
        vocabulary,
        rules: String::new(),
        num_rules: 0,
        grammars: Vec::new(),
        size: Size::default(),
    };
    let start = match value.get("format") {
        Some(format) => writer.format(&read(format)?, true)?,
        None => {
            let Structures { structures, triggers } = read(&value)?;
            let tag = |structure: Structure| Tag {
                begin: structure.begin,
                content: Box::new(Format::JsonSchema { json_schema: structure.schema }),
                end: structure.end,
            };
            let tags: Vec<Tag> = structures.into_iter().map(tag).collect();
            writer.triggered(&triggers, &tags, false, false)?
        }
    };
    let main = format!("start: {start}\n{}", writer.rules);
    writer.size.add_lark(&main)?;
    let mut grammars = vec![GrammarWithLexer::from_lark(main)];
    grammars.append(&mut writer.grammars);
    Ok(TopLevelGrammar { grammars, max_tokens: None })
}

fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, GrammarError> {
    T::deserialize(value)
        .map_err(|error| invalid(format!("the structural tag is not understood: {error}")))
}

/// A grammar being written: rules in Lark, and further grammars that they refer to.
struct Writer<'a> {
    output: &'a StructuredOutput,
    closes: bool,
    vocabulary: &'a Vocabulary,
    rules: String,
    num_rules: usize,
    grammars: Vec<GrammarWithLexer>,
    /// The size of the whole grammar.
    size: Size,
}

impl Writer<'_> {
    /// Writes a part and returns its name. Only the last part may be free text, because the end of
    /// free text cannot be found otherwise.
    fn format(&mut self, format: &Format, is_last: bool) -> Result<String, GrammarError> {
        match format {
            Format::ConstString { value } => self.spelled_rule(value),
            Format::JsonSchema { json_schema } => {
                let schema = json_schema.clone();
                let schema = json::prepared(schema, self.output, self.closes, &mut self.size)?;
                Ok(self.grammar(GrammarWithLexer::from_json_schema(schema)))
            }
            Format::Regex { pattern } => {
                size::check_regex(pattern)?;
                let regex = lark::regex(compile::unanchored(pattern));
                Ok(self.rule(&regex))
            }
            Format::Grammar { grammar } => {
                let lark = compile::to_lark(grammar, &mut self.size)?;
                Ok(self.grammar(GrammarWithLexer::from_lark(lark)))
            }
            Format::AnyText { excludes } if !excludes.is_empty() => {
                Err(invalid("`excludes` of any_text is not supported".to_owned()))
            }
            Format::AnyText { .. } if is_last => Ok(self.rule(TEXT)),
            Format::AnyText { .. } => Err(misplaced("any_text")),
            Format::Sequence { elements } => {
                let last = elements.len().saturating_sub(1);
                let parts = elements.iter().enumerate();
                let parts = parts.map(|(index, part)| self.format(part, is_last && index == last));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                Ok(self.rule(&non_empty(parts.join(" "))))
            }
            Format::Or { elements } => {
                let parts = elements.iter().map(|part| self.format(part, is_last));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                Ok(self.rule(&non_empty(parts.join(" | "))))
            }
            Format::Tag(tag) => {
                let parts = self.tag(tag, &tag.begin)?;
                Ok(self.rule(&parts))
            }
            Format::TriggeredTags { triggers, tags, at_least_one, stop_after_first } => {
                if !is_last {
                    return Err(misplaced("triggered_tags"));
                }
                self.triggered(triggers, tags, *at_least_one, *stop_after_first)
            }
            Format::TagsWithSeparator { tags, separator, at_least_one, stop_after_first } => {
                let tags = tags.iter().map(|tag| self.tag(tag, &tag.begin));
                let tags = non_empty(tags.collect::<Result<Vec<_>, _>>()?.join(" | "));
                let tag = self.rule(&tags);
                let separator = self.spelled_rule(separator)?;
                let more = if *stop_after_first { "" } else { " (SEPARATOR TAG)*" };
                let list = format!("(TAG{more})").replace("SEPARATOR", &separator);
                let optional = if *at_least_one { "" } else { "?" };
                Ok(self.rule(&(list.replace("TAG", &tag) + optional)))
            }
        }
    }

    /// Writes a tag, and returns its name. The text `begin` has not been written yet.
    fn tag(&mut self, tag: &Tag, begin: &str) -> Result<String, GrammarError> {
        let begin = self.spelled(begin)?;
        if !matches!(&*tag.content, Format::AnyText { excludes } if excludes.is_empty()) {
            let content = self.format(&tag.content, false)?;
            return Ok(format!("{begin} {content} {}", self.spelled(&tag.end)?));
        }
        let content = self.text_until(&tag.end)?;
        Ok(format!("{begin} {content}"))
    }

    /// Writes free text in which each trigger begins one of its tags.
    fn triggered(
        &mut self,
        triggers: &[String],
        tags: &[Tag],
        at_least_one: bool,
        stop_after_first: bool,
    ) -> Result<String, GrammarError> {
        if tags.is_empty() {
            return Err(invalid("a structural tag needs at least one structure".to_owned()));
        }
        let mut rests: IndexMap<&str, Vec<String>> = IndexMap::new();
        for tag in tags {
            let trigger = triggers.iter().find(|trigger| tag.begin.starts_with(trigger.as_str()));
            let trigger = trigger.filter(|trigger| !trigger.is_empty()).ok_or_else(|| {
                invalid(format!("no trigger begins the tag {:?}: {triggers:?}", tag.begin))
            })?;
            let rest = self.tag(tag, &tag.begin[trigger.len()..])?;
            rests.entry(trigger).or_default().push(rest);
        }
        let mut options = Vec::new();
        for (trigger, rests) in rests {
            // The text before the tag, which may be empty, ends with the trigger.
            let text = self.text_until(trigger)?;
            options.push(format!("{text} ({})", rests.join(" | ")));
        }
        let tag = self.rule(&options.join(" | "));
        Ok(match (at_least_one, stop_after_first) {
            (true, true) => tag,
            (false, true) => {
                let text = self.rule(TEXT);
                self.rule(&format!("{tag} | {text}"))
            }
            (at_least_one, false) => {
                let (times, text) = (if at_least_one { "+" } else { "*" }, self.rule(TEXT));
                self.rule(&format!("{tag}{times} {text}"))
            }
        })
    }

    /// Writes text up to and including the first `end`.
    fn text_until(&mut self, end: &str) -> Result<String, GrammarError> {
        if end.is_empty() {
            return Err(invalid("free text needs something to end it".to_owned()));
        }
        // A special token is no text, so it ends the text before it.
        let spelled = self.spelled(end)?;
        if self.vocabulary.special_at(end).is_some() {
            let text = self.rule(TEXT);
            return Ok(format!("{text} {spelled}"));
        }
        let name = self.next_name();
        let end = lark::quoted(end);
        // Writing to a string cannot fail.
        let _ = writeln!(self.rules, "{name}[suffix={end}]: {TEXT}");
        Ok(name)
    }

    fn spelled(&self, text: &str) -> Result<String, GrammarError> {
        compile::limited("a text of the structural tag", text, MAX_TEXT_BYTES)?;
        Ok(lark::spelled(text, self.vocabulary))
    }

    fn spelled_rule(&mut self, text: &str) -> Result<String, GrammarError> {
        let parts = self.spelled(text)?;
        Ok(self.rule(&parts))
    }

    fn rule(&mut self, body: &str) -> String {
        let name = self.next_name();
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    fn next_name(&mut self) -> String {
        self.num_rules += 1;
        format!("p{}", self.num_rules)
    }

    fn grammar(&mut self, grammar: GrammarWithLexer) -> String {
        let name = format!("g{}", self.grammars.len());
        let reference = format!("@{name}");
        self.grammars.push(GrammarWithLexer { name: Some(name), ..grammar });
        self.rule(&reference)
    }
}

fn non_empty(parts: String) -> String {
    if parts.is_empty() { "\"\"".to_owned() } else { parts }
}

fn misplaced(format: &str) -> GrammarError {
    invalid(format!("{format} is supported as the content of a tag and at the end of the output"))
}

fn invalid(message: String) -> GrammarError {
    GrammarError::Invalid(message)
}
