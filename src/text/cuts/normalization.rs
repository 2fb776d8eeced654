//! What a normalizer does to a text, where it does it to each character alone.

use serde_json::Value;

/// Form C, and characters that stand for others.
#[derive(Debug, Default)]
pub(super) struct Normalization {
    /// Form C, which joins characters.
    pub(super) is_composed: bool,
    /// One that comes before every text that is not empty.
    pub(super) prepended: Option<char>,
    replaced: Vec<(char, char)>,
}

impl Normalization {
    /// Reads `normalizer` of a `tokenizer.json`, or gives `None` for one of another kind.
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
            "Sequence" => {
                for part in normalizer["normalizers"].as_array()? {
                    self.add(part)?;
                }
            }
            "Replace" => {
                let from = only_char(&normalizer["pattern"]["String"])?;
                self.replaced.push((from, only_char(&normalizer["content"])?));
            }
            // What comes after it may change it too: two in a row would not be understood.
            "Prepend" if self.prepended.is_none() => {
                self.prepended = Some(only_char(&normalizer["prepend"])?);
            }
            _ => return None,
        }
        Some(())
    }

    /// What a character becomes.
    pub(super) fn map(&self, c: char) -> char {
        let replace = |c, &(from, to): &(char, char)| if c == from { to } else { c };
        self.replaced.iter().fold(c, replace)
    }
}

fn only_char(value: &Value) -> Option<char> {
    let mut chars = value.as_str()?.chars();
    chars.next().filter(|_| chars.next().is_none())
}
