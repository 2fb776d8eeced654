//! A pre-tokenizer, as the stages that cut a text into words, one after another.

use serde_json::Value;

use super::classes::Class;
use super::expression::Expression;
use super::normalization::Normalization;

/// GPT-2's expression, which the library's byte-level stage has built in.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The effect of the stages between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// A word always ends, and each side is cut as it is alone.
    End,
    /// Each side is cut as it is alone, and a word may end or not. The characters are those that
    /// the stages make of the two.
    Open { before: char, after: char },
    /// The effect is unknown.
    Unknown,
}

#[derive(Debug)]
enum Stage {
    Expression(Expression),
    Digits,
    /// White space ends words and is dropped. Punctuation may form words of its own.
    Words {
        of_punctuation: bool,
    },
    /// A text that does not begin with a space gets one.
    SpaceFirst,
    /// A space becomes `replacement`. A text that does not begin with `replacement` may get one.
    /// With `cuts`, words begin there.
    Spaces {
        replacement: char,
        cuts: bool,
    },
    /// Characters become the bytes of their UTF-8.
    Bytes,
}

/// All stages.
#[derive(Debug, Default)]
pub(super) struct Stages {
    stages: Vec<Stage>,
}

impl Stages {
    /// Reads `pre_tokenizer` of a `tokenizer.json`. Returns `None` for another kind.
    pub(super) fn read(pre_tokenizer: &Value, normalization: &Normalization) -> Option<Self> {
        let mut all = Self::default();
        all.add(pre_tokenizer, normalization)?;
        Some(all)
    }

    fn add(&mut self, stage: &Value, normalization: &Normalization) -> Option<()> {
        if stage.is_null() {
            return Some(());
        }
        // The classes hold characters, and the text now consists of bytes.
        if self.stages.iter().any(|stage| matches!(stage, Stage::Bytes)) {
            return None;
        }
        match stage["type"].as_str()? {
            "Sequence" => {
                for stage in stage["pretokenizers"].as_array()? {
                    self.add(stage, normalization)?;
                }
            }
            "Split" => {
                let pattern = &stage["pattern"];
                let text = pattern["String"].as_str();
                // The normalizer has replaced this character, so it is found nowhere.
                let mut chars = text.unwrap_or_default().chars();
                if let (Some(only), None) = (chars.next(), chars.next())
                    && normalization.map(only) != Some(only)
                {
                    return (!normalization.is_ascii_only).then_some(());
                }
                if !matches!(stage["behavior"].as_str()?, "Isolated" | "Removed") {
                    return None;
                }
                let expression = match text {
                    Some(text) => regex_syntax::escape(text),
                    None => pattern["Regex"].as_str()?.to_owned(),
                };
                self.stages.push(Stage::Expression(Expression::read(&expression)?));
            }
            "ByteLevel" => {
                if stage["add_prefix_space"].as_bool()? {
                    self.stages.push(Stage::SpaceFirst);
                }
                if stage["use_regex"].as_bool()? {
                    self.stages.push(Stage::Expression(Expression::read(GPT2)?));
                }
                self.stages.push(Stage::Bytes);
            }
            "Digits" => self.stages.push(Stage::Digits),
            "BertPreTokenizer" => self.stages.push(Stage::Words { of_punctuation: true }),
            "Whitespace" | "WhitespaceSplit" => {
                self.stages.push(Stage::Words { of_punctuation: false });
            }
            "Metaspace" => {
                let replacement = stage["replacement"].as_str()?.chars().next()?;
                self.stages.push(Stage::Spaces { replacement, cuts: stage["split"].as_bool()? });
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns whether a part between two ends of words may hold more than one word.
    pub(super) fn may_be_open(&self) -> bool {
        let ends_words = |stage: &Stage| {
            matches!(stage, Stage::Expression(_) | Stage::Bytes | Stage::Words { .. })
        };
        !self.stages.iter().any(ends_words)
    }

    /// Returns the effect between `before` and `after`, which are normalized.
    pub(super) fn between(&self, mut before: char, mut after: char) -> Between {
        let mut is_end = false;
        for stage in &self.stages {
            match stage {
                // A part must not get a character that the whole lacks, even where a word ends
                // anyway.
                Stage::SpaceFirst if after != ' ' => return Between::Unknown,
                Stage::Spaces { replacement, cuts } => {
                    let replaced = |c| if c == ' ' { *replacement } else { c };
                    (before, after) = (replaced(before), replaced(after));
                    if after != *replacement {
                        return Between::Unknown;
                    }
                    is_end |= cuts;
                }
                _ if is_end => {}
                Stage::SpaceFirst => {}
                Stage::Expression(expression) => {
                    let classes = Class::of(before).zip(Class::of(after));
                    if !classes.is_some_and(|(before, after)| expression.parts(before, after)) {
                        return Between::Unknown;
                    }
                    is_end = true;
                }
                Stage::Words { of_punctuation } => {
                    let is_apart = |c: char| {
                        c.is_whitespace() || (*of_punctuation && c.is_ascii_punctuation())
                    };
                    if !(is_apart(before) || is_apart(after)) {
                        return Between::Unknown;
                    }
                    is_end = true;
                }
                Stage::Digits if before.is_numeric() != after.is_numeric() => is_end = true,
                Stage::Digits if before.is_numeric() => return Between::Unknown,
                Stage::Digits => {}
                Stage::Bytes => return Between::Unknown,
            }
        }
        if is_end { Between::End } else { Between::Open { before, after } }
    }
}
