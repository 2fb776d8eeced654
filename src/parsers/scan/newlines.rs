//! Line breaks that a model writes as the two characters `\n`.

/// Turns `\n`, `\r` and `\r\n` that are written out into line breaks. Code, mathematics and
/// backslashes that are written twice stay as they are.
#[derive(Debug, Default)]
pub(in super::super) struct WrittenNewlines {
    /// The end of the code or the mathematics that the text is in.
    end: Option<&'static str>,
    /// The beginning of a word that is not complete.
    held: String,
    /// Whether the last word was backslashes, of which there was more than one.
    is_run: bool,
}

/// Bytes of the held text that are decided, and their meaning.
enum Word {
    /// Text that stays. It begins, continues or ends code or mathematics.
    Text(usize, Option<&'static str>),
    LineBreak(usize),
}

impl WrittenNewlines {
    /// Takes a character. Appends to `text` all characters that are decided.
    pub(in super::super) fn push(&mut self, c: char, text: &mut String) {
        self.held.push(c);
        self.drain(false, text);
    }

    /// Appends to `text` the characters held back, as at the end of a text.
    pub(in super::super) fn release(&mut self, text: &mut String) {
        self.drain(true, text);
    }

    fn drain(&mut self, is_end: bool, text: &mut String) {
        while let Some(word) = self.word(is_end) {
            let length = match word {
                Word::Text(length, end) => {
                    let words = &self.held[..length];
                    text.push_str(words);
                    let is_only_backslashes = words.chars().all(|c| c == '\\');
                    self.is_run = is_only_backslashes && (self.is_run || length > 1);
                    self.end = end;
                    length
                }
                Word::LineBreak(length) => {
                    text.push('\n');
                    length
                }
            };
            self.held.drain(..length);
        }
    }

    /// Returns the first word of the held text. `None` if the next character decides.
    fn word(&self, is_end: bool) -> Option<Word> {
        let held = self.held.as_str();
        let first = held.chars().next()?;
        let may_grow = |words: &[&str]| !is_end && words.contains(&held);
        let run = held.len() - held.trim_start_matches('\\').len();
        let word = match (self.end, first) {
            (Some(end), _) if held.starts_with(end) => Word::Text(end.len(), None),
            (Some(end), _) if !is_end && end.starts_with(held) => return None,
            (Some(end), _) => Word::Text(first.len_utf8(), Some(end)),
            (None, '`') if may_grow(&["`", "``"]) => return None,
            (None, '`') if held.starts_with("```") => Word::Text(3, Some("```")),
            (None, '`') => Word::Text(1, Some("`")),
            (None, '$') if may_grow(&["$"]) => return None,
            (None, '$') if held.starts_with("$$") => Word::Text(2, Some("$$")),
            (None, '$') => Word::Text(1, Some("$")),
            (None, '\\') if run > 1 || self.is_run => Word::Text(run, None),
            (None, '\\') if may_grow(&["\\", "\\r", "\\r\\"]) => return None,
            (None, '\\') if held.starts_with("\\r\\n") => Word::LineBreak(4),
            (None, '\\') if held.starts_with("\\n") || held.starts_with("\\r") => {
                Word::LineBreak(2)
            }
            (None, '\\') if held.starts_with("\\(") => Word::Text(2, Some("\\)")),
            (None, '\\') if held.starts_with("\\[") => Word::Text(2, Some("\\]")),
            (None, _) => Word::Text(first.len_utf8(), None),
        };
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(text: &str) -> String {
        let (mut newlines, mut recovered) = (WrittenNewlines::default(), String::new());
        text.chars().for_each(|c| newlines.push(c, &mut recovered));
        newlines.release(&mut recovered);
        recovered
    }

    /// The outcomes are those of vLLM's `recover_newlines`.
    #[test]
    fn line_breaks_are_recovered_outside_code_and_mathematics() {
        let table = [
            (r"a\nb", "a\nb"),
            (r"a\r\nb\rc\r", "a\nb\nc\n"),
            (r"a\r\x", "a\n\\x"),
            (r"a\\nb\\\nc\\", r"a\\nb\\\nc\\"),
            (r"a\tb\", r"a\tb\"),
            (r"`a\n`\n``b\n", "`a\\n`\n``b\n"),
            ("```py\\n\n``\\n```\\n", "```py\\n\n``\\n```\n"),
            (r"$\nu$\n$$\nu$ \nu$$\n", "$\\nu$\n$$\\nu$ \\nu$$\n"),
            (r"\(\nu\)\n\[\nu\) \nu\]\n", "\\(\\nu\\)\n\\[\\nu\\) \\nu\\]\n"),
            (r"é`", "é`"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(recovered(text), expected, "{text}");
        }
    }
}
