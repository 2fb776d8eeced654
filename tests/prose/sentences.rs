//! Paragraphs, sentences and words.

/// Lines of prose that belong together.
#[derive(Debug, Default)]
pub(crate) struct Paragraph {
    /// Number of the line, its prose, and how wide the line is in its file.
    lines: Vec<(usize, String, usize)>,
}

impl Paragraph {
    /// Adds line `number` of the file, which is `columns` wide and says `prose`.
    pub(crate) fn push(&mut self, number: usize, prose: &str, columns: usize) {
        self.lines.push((number, prose.to_owned(), columns));
    }

    /// Whether it has no lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines wider than `max`, with their widths.
    pub(crate) fn wide_lines(&self, max: usize) -> impl Iterator<Item = (usize, usize)> {
        let is_wide = move |line: &&(usize, String, usize)| line.2 > max;
        self.lines.iter().filter(is_wide).map(|(number, _, columns)| (*number, *columns))
    }
}

/// Abbreviations whose last full stop does not end a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "cf.", "vs."];

/// Returns the sentences of `paragraph`, each with the line that it begins in. Code in back quotes
/// becomes the word `code`. A colon ends a sentence as a full stop does. A semicolon does not,
/// because it joins what could be two sentences.
pub(crate) fn sentences(paragraph: &Paragraph) -> Vec<(usize, String)> {
    let (mut found, mut sentence, mut begin, mut in_code) = (Vec::new(), String::new(), 0, false);
    for (number, prose, _) in &paragraph.lines {
        let mut chars = prose.chars();
        while let Some(c) = chars.next() {
            if sentence.trim().is_empty() {
                begin = *number;
            }
            match c {
                '`' => {
                    if !in_code {
                        sentence.push_str("code");
                    }
                    in_code = !in_code;
                }
                _ if in_code => {}
                '.' | '!' | '?' | ':' => {
                    sentence.push(c);
                    if let Some(num_closing) = closing_if_last(&sentence, chars.as_str()) {
                        sentence.extend(chars.by_ref().take(num_closing));
                        found.push((begin, std::mem::take(&mut sentence).trim().to_owned()));
                    }
                }
                _ => sentence.push(c),
            }
        }
        sentence.push(' ');
    }
    found.push((begin, sentence.trim().to_owned()));
    found.retain(|(_, sentence)| !sentence.is_empty());
    found
}

/// Returns the number of quotes and brackets that close `sentence`, if its last mark ends it.
/// `rest` is the rest of the line.
fn closing_if_last(sentence: &str, rest: &str) -> Option<usize> {
    let after = rest.trim_start_matches(['"', '\'', ')', '*', '”']);
    let is_end = after.is_empty() || after.starts_with(char::is_whitespace);
    let last = sentence.rsplit(char::is_whitespace).next().unwrap_or_default();
    let is_abbreviation = ABBREVIATIONS.contains(&last.trim_start_matches(['(', '"']));
    let num_closing = rest.chars().count() - after.chars().count();
    (is_end && !is_abbreviation).then_some(num_closing)
}

/// Returns the words of `sentence`: letters, digits, apostrophes and hyphens in a row.
pub(crate) fn words(sentence: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '-' | '_');
    let words = sentence.split(|c| !is_word(c));
    words.filter(|word| word.chars().any(char::is_alphanumeric)).collect()
}
