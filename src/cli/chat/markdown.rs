//! Shows Markdown on a terminal as it arrives: headings, bold, code and lists by styles, and lines
//! broken between words. It is pure: text in, text out. The next piece may change the meaning of
//! this one (`*` or `**`), so a word is written once it is complete.

use unicode_width::UnicodeWidthStr;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const CODE: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";
/// Deepest indentation of a list that lines keep.
const INDENT_MAX: usize = 20;

/// The state of the text so far.
#[derive(Debug)]
pub(super) struct Markdown {
    /// Columns of the terminal. `None`: lines are not broken.
    width: Option<usize>,
    /// Whether styles are written. Without them, the marks stay.
    has_styles: bool,
    /// Columns of the line so far.
    column: usize,
    /// Columns at the beginning of a broken line.
    indent: usize,
    /// White space before the next word, or at the beginning of a line.
    space: String,
    word: String,
    /// Whether the word is the first of its line.
    begins_line: bool,
    is_bold: bool,
    is_code: bool,
    is_heading: bool,
    /// The number of marks before a block of code, which is shown as it is. 0 outside of one.
    fence: usize,
}

impl Markdown {
    pub(super) fn new(width: Option<usize>, has_styles: bool) -> Self {
        Self {
            // A narrow window is left to the terminal.
            width: width.filter(|&width| width >= 20),
            has_styles,
            column: 0,
            indent: 0,
            space: String::new(),
            word: String::new(),
            begins_line: true,
            is_bold: false,
            is_code: false,
            is_heading: false,
            fence: 0,
        }
    }

    /// Returns the text to write for the next piece.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    self.end_word(&mut out);
                    self.end_line(&mut out);
                }
                ' ' | '\t' if self.fence == 0 || self.word.is_empty() => {
                    self.end_word(&mut out);
                    self.space.push(c);
                }
                c => self.word.push(c),
            }
        }
        out
    }

    /// Returns the rest of the text.
    pub(super) fn end(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        let is_styled = self.is_bold || self.is_code || self.is_heading || self.fence > 0;
        if self.has_styles && is_styled {
            out.push_str(RESET);
        }
        *self = Self::new(self.width, self.has_styles);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let space = std::mem::take(&mut self.space);
        let begins_line = std::mem::take(&mut self.begins_line);
        if begins_line && self.is_fence(&word) {
            out.push_str(&space);
            return self.fence(&word, out);
        }
        if self.fence > 0 {
            out.push_str(&space);
            out.push_str(&word);
            return;
        }
        if begins_line {
            self.begin_line(&space, &word, out);
        }
        let shown = word.trim_matches('*').replace('`', "");
        let columns = if self.has_styles { shown.width() } else { word.width() };
        let gap = space.width();
        let is_full = self.width.is_some_and(|width| self.column + gap + columns > width);
        if is_full && !begins_line {
            out.push('\n');
            out.push_str(&" ".repeat(self.indent));
            self.column = self.indent;
        } else {
            out.push_str(&space);
            self.column += gap;
        }
        self.column += columns;
        match self.has_styles {
            true => self.styled(&word, out),
            false => out.push_str(&word),
        }
    }

    /// Notes what the first word of a line says about the line.
    fn begin_line(&mut self, space: &str, word: &str, out: &mut String) {
        let number = word.strip_suffix(['.', ')']).is_some_and(|number| {
            !number.is_empty() && number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit())
        });
        let is_item = matches!(word, "-" | "*" | "+" | ">") || number;
        let inner = space.width() + word.width() + 1;
        self.indent = if is_item { inner.min(INDENT_MAX) } else { 0 };
        let level = word.bytes().take_while(|&byte| byte == b'#').count();
        self.is_heading = level == word.len() && (1..=6).contains(&level);
        if self.is_heading && self.has_styles {
            out.push_str(BOLD);
        }
    }

    /// Writes a word with its styles in place of its marks.
    fn styled(&mut self, word: &str, out: &mut String) {
        // A mark of a list or a product.
        if word.bytes().all(|byte| byte == b'*') {
            return out.push_str(word);
        }
        let mut rest = word;
        while let Some(c) = rest.chars().next() {
            if c == '`' {
                self.is_code = !self.is_code;
                self.restyle(out);
                rest = &rest[1..];
            } else if !self.is_code && rest.starts_with("**") {
                self.is_bold = !self.is_bold;
                self.restyle(out);
                rest = &rest[2..];
            } else {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }

    /// Writes the styles that are on.
    fn restyle(&self, out: &mut String) {
        out.push_str(RESET);
        if self.is_bold || self.is_heading {
            out.push_str(BOLD);
        }
        if self.is_code {
            out.push_str(CODE);
        }
    }

    /// Returns whether the first word of a line begins or ends a block of code. A block may show
    /// other blocks, with fewer marks. A line with marks on both sides is code within a text.
    fn is_fence(&self, word: &str) -> bool {
        let count = marks(word);
        let rest = word[count..].trim_end();
        match self.fence {
            0 => count >= 3 && !rest.contains('`'),
            open => count >= open && rest.is_empty(),
        }
    }

    fn fence(&mut self, word: &str, out: &mut String) {
        self.fence = if self.fence == 0 { marks(word) } else { 0 };
        if !self.has_styles {
            return out.push_str(word);
        }
        out.push_str(DIM);
        out.push_str(word);
        out.push_str(RESET);
        if self.fence > 0 {
            out.push_str(CODE);
        }
    }

    fn end_line(&mut self, out: &mut String) {
        if self.fence > 0 {
            out.push_str(&std::mem::take(&mut self.space));
        }
        self.space.clear();
        if self.is_heading && self.has_styles {
            out.push_str(RESET);
        }
        // A mark that is not closed ends with its paragraph.
        if self.begins_line && self.has_styles && (self.is_bold || self.is_code) {
            out.push_str(RESET);
            (self.is_bold, self.is_code) = (false, false);
        }
        self.is_heading = false;
        self.begins_line = true;
        (self.column, self.indent) = (0, 0);
        out.push('\n');
    }
}

/// Returns the number of marks of code at the beginning of a word.
fn marks(word: &str) -> usize {
    word.bytes().take_while(|&byte| byte == b'`').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text shown for pieces of every size, which must be the same.
    fn shown(width: Option<usize>, has_styles: bool, text: &str) -> String {
        let whole = |size: usize| {
            let mut markdown = Markdown::new(width, has_styles);
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut shown: String = pieces.map(|piece| markdown.push(&piece)).collect();
            shown += &markdown.end();
            shown
        };
        let expected = whole(text.len().max(1));
        for size in 1..8 {
            assert_eq!(whole(size), expected, "in pieces of {size}");
        }
        expected
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = "The curtain rose over the old house.\n\n- an item that is too long\n";
        let expected = "The curtain rose over\nthe old house.\n\n- an item that is too\n  long\n";
        assert_eq!(shown(Some(22), false, text), expected);
        assert_eq!(shown(None, false, text), text);
        let wide = "日本語 日本語 日本語 日本語";
        assert_eq!(shown(Some(20), false, wide), "日本語 日本語 日本語\n日本語");
        let long = "x".repeat(50);
        assert_eq!(shown(Some(20), false, &long), long);
    }

    #[test]
    fn marks_become_styles() {
        let styled = |text| shown(None, true, text);
        assert_eq!(styled("a **b c** d"), format!("a {RESET}{BOLD}b c{RESET} d"));
        assert_eq!(styled("run `ls **` now"), format!("run {RESET}{CODE}ls **{RESET} now"));
        assert_eq!(styled("# Title\ntext"), format!("{BOLD}# Title{RESET}\ntext"));
        assert_eq!(styled("2 * 3 ** 4"), "2 * 3 ** 4");
        assert_eq!(styled("* item"), "* item");
    }

    #[test]
    fn code_stays_as_it_is() {
        let text = "```rust\nlet  a = **b;   // a comment that is longer than the line\n```\n";
        assert_eq!(shown(Some(20), false, text), text);
        let styled = shown(Some(20), true, text);
        assert!(styled.contains("let  a = **b;   // a comment that is longer"), "{styled}");
        assert!(styled.starts_with(&format!("{DIM}```rust{RESET}{CODE}\n")), "{styled}");
        let listed = "- run\n  ```sh\n  ls  -l\n  ```\n";
        assert_eq!(shown(Some(20), false, listed), listed, "with the space before the marks");
    }

    /// As in CommonMark, 4.5: the end has as many marks as the beginning, and no language.
    #[test]
    fn a_block_of_code_ends_with_its_own_marks() {
        let nested = shown(None, true, "````md\n```\n**in**\n````\n");
        assert!(nested.contains("\n```\n**in**\n"), "a block within a block: {nested}");
        let whole = "```md\n```js\n**in**\n```\n**after**\n";
        assert!(shown(None, true, whole).contains("**in**"), "a language ends nothing");
        assert!(shown(None, true, whole).ends_with(&format!("{BOLD}after{RESET}\n")));
        let inline = "```ls```\n**after**\n";
        assert!(shown(None, true, inline).ends_with(&format!("{BOLD}after{RESET}\n")));
    }
}
