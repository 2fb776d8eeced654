//! A normalizer's effect on a text, if it treats each character alone.

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// A change of each character.
#[derive(Debug)]
enum Step {
    /// One character becomes another.
    Replace(char, char),
    /// Lower case, whatever the neighbours are.
    Lowercase,
    /// The result for each ASCII character, by its code. `None` if it becomes nothing or several.
    Ascii(Box<[Option<char>]>),
}

/// A form of Unicode, and replacements of characters.
#[derive(Debug, Default)]
pub(super) struct Normalization {
    /// Form C, which joins characters.
    pub(super) is_composed: bool,
    /// Whether it joins, splits or drops characters that are not ASCII. An ASCII character with
    /// another one behind it is treated as if alone, because forms of Unicode join it only with
    /// marks.
    pub(super) is_ascii_only: bool,
    /// A character that comes before every text that is not empty.
    pub(super) prepended: Option<char>,
    steps: Vec<Step>,
}

impl Normalization {
    /// Reads `normalizer` of a `tokenizer.json`. Returns `None` for another kind.
    pub(super) fn read(normalizer: &Value) -> Option<Self> {
        let mut all = Self::default();
        all.add(normalizer)?;
        Some(all)
    }

    fn add(&mut self, normalizer: &Value) -> Option<()> {
        if normalizer.is_null() {
            return Some(());
        }
        match normalizer["type"].as_str()? {
            "NFC" => self.is_composed = true,
            "NFD" | "NFKC" | "NFKD" | "StripAccents" | "BertNormalizer" => {
                self.is_ascii_only = true;
                self.push(Step::Ascii(ascii_images(normalizer)?))?;
            }
            "Lowercase" => self.push(Step::Lowercase)?,
            "Sequence" => {
                for part in normalizer["normalizers"].as_array()? {
                    self.add(part)?;
                }
            }
            "Replace" => {
                let from = only_char(&normalizer["pattern"]["String"])?;
                self.push(Step::Replace(from, only_char(&normalizer["content"])?))?;
            }
            // Two prefixes in a row are not supported.
            "Prepend" if self.prepended.is_none() => {
                self.prepended = Some(only_char(&normalizer["prepend"])?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds a step, which also changes the prefix.
    fn push(&mut self, step: Step) -> Option<()> {
        if let Some(prepended) = self.prepended {
            self.prepended = Some(step.map(prepended)?);
        }
        self.steps.push(step);
        Some(())
    }

    /// Returns the character that `c` becomes. `None` if that is unknown, or not one character.
    pub(super) fn map(&self, c: char) -> Option<char> {
        self.steps.iter().try_fold(c, |c, step| step.map(c))
    }

    /// Returns whether `c` becomes the same with marks behind it as without.
    pub(super) fn takes_no_marks(&self, c: char) -> bool {
        let map = |c, step: &Step| step.map(c).filter(|&c| is_never_joined(c));
        is_never_joined(c) && self.steps.iter().try_fold(c, map).is_some()
    }
}

/// Returns whether no form of Unicode joins `c` with a mark behind it.
fn is_never_joined(c: char) -> bool {
    c.is_ascii_whitespace() || c == '▁'
}

impl Step {
    fn map(&self, c: char) -> Option<char> {
        match self {
            Self::Replace(from, to) => Some(if c == *from { *to } else { c }),
            Self::Lowercase => only(c.to_lowercase()),
            Self::Ascii(images) => images.get(c as usize).copied().flatten(),
        }
    }
}

/// Returns the character that each ASCII character becomes alone.
fn ascii_images(normalizer: &Value) -> Option<Box<[Option<char>]>> {
    let normalizer: NormalizerWrapper = serde_json::from_value(normalizer.clone()).ok()?;
    let image = |code: u8| {
        let mut text = NormalizedString::from(char::from(code).to_string());
        normalizer.normalize(&mut text).ok()?;
        Some(only(text.get().chars()))
    };
    (0..128).map(image).collect()
}

fn only_char(value: &Value) -> Option<char> {
    only(value.as_str()?.chars())
}

fn only(mut chars: impl Iterator<Item = char>) -> Option<char> {
    chars.next().filter(|_| chars.next().is_none())
}
