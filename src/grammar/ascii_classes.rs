//! `\d`, `\w` and `\s` as ASCII classes, which is their meaning in vLLM's backends and in JSON
//! Schema's dialect. In the library they are Unicode: `\d` would also match Arabic digits.
//!
//! Only these classes and their negations are rewritten. Literals, `.`, other classes and case
//! folding stay Unicode, so a negation still matches whole characters. A pattern that turns Unicode
//! on with the flag `u` means Unicode.

use std::{borrow::Cow, convert::Infallible, ops::Range};

use regex_syntax::ast::{
    Ast, ClassPerl, ClassPerlKind, ClassSetItem, Flag, Visitor, parse::Parser, visit,
};

/// Returns the pattern with ASCII classes. A malformed pattern is unchanged, because the library
/// rejects it.
pub(super) fn with_ascii_classes(pattern: &str) -> Cow<'_, str> {
    match classes(pattern).as_slice() {
        [] => Cow::Borrowed(pattern),
        classes => Cow::Owned(rewritten(pattern, classes)),
    }
}

/// Returns the grammar in Lark's notation with ASCII classes in its regular expressions. `bodies`
/// are the ranges of these expressions. Flags stand behind the closing slash.
pub(super) fn lark_with_ascii_classes<'a>(text: &'a str, bodies: &[Range<usize>]) -> Cow<'a, str> {
    let in_body = |body: &Range<usize>| {
        let is_flag = |c: char| "imslux".contains(c);
        let behind = text.get(body.end + 1..).unwrap_or_default();
        let flags: String = behind.chars().take_while(|c| is_flag(*c)).collect();
        let prefix = if flags.is_empty() { flags } else { format!("(?{flags})") };
        let found = classes(&format!("{prefix}{}", &text[body.clone()]));
        let shift = |place: usize| place + body.start - prefix.len();
        let shifted =
            found.into_iter().map(move |(span, class)| (shift(span.start)..shift(span.end), class));
        shifted.collect::<Vec<_>>()
    };
    match bodies.iter().flat_map(in_body).collect::<Vec<_>>().as_slice() {
        [] => Cow::Borrowed(text),
        classes => Cow::Owned(rewritten(text, classes)),
    }
}

/// The range of a class, and its replacement.
type Class = (Range<usize>, &'static str);

fn rewritten(text: &str, classes: &[Class]) -> String {
    let mut ascii = String::with_capacity(text.len() + 16 * classes.len());
    let mut rest = 0;
    for (span, class) in classes {
        ascii.push_str(&text[rest..span.start]);
        ascii.push_str(class);
        rest = span.end;
    }
    ascii + &text[rest..]
}

/// Returns the classes in order.
fn classes(pattern: &str) -> Vec<Class> {
    if !pattern.contains('\\') {
        return Vec::new();
    }
    let Ok(ast) = Parser::new().parse(pattern) else { return Vec::new() };
    let Ok(classes) = visit(&ast, Finder { classes: Vec::new(), is_unicode: vec![false] });
    classes
}

struct Finder {
    classes: Vec<Class>,
    /// Whether the flag `u` is on, in each group around the current place.
    is_unicode: Vec<bool>,
}

impl Finder {
    fn add(&mut self, class: &ClassPerl) {
        if self.is_unicode.last() == Some(&true) {
            return;
        }
        // White space in a class does not count under the flag `x`, hence `\x20`.
        let ascii = match (&class.kind, class.negated) {
            (ClassPerlKind::Digit, false) => "[0-9]",
            (ClassPerlKind::Digit, true) => "[^0-9]",
            (ClassPerlKind::Word, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true) => "[^0-9A-Za-z_]",
            (ClassPerlKind::Space, false) => r"[\x20\t\n\r\f\v]",
            (ClassPerlKind::Space, true) => r"[^\x20\t\n\r\f\v]",
        };
        self.classes.push((class.span.start.offset..class.span.end.offset, ascii));
    }

    fn set(&mut self, flag: Option<bool>) {
        if let (Some(is_unicode), Some(last)) = (flag, self.is_unicode.last_mut()) {
            *last = is_unicode;
        }
    }
}

impl Visitor for Finder {
    type Output = Vec<Class>;
    type Err = Infallible;

    fn finish(self) -> Result<Vec<Class>, Infallible> {
        Ok(self.classes)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::ClassPerl(class) => self.add(class),
            Ast::Flags(set) => self.set(set.flags.flag_state(Flag::Unicode)),
            Ast::Group(group) => {
                self.is_unicode.push(self.is_unicode.last() == Some(&true));
                self.set(group.flags().and_then(|flags| flags.flag_state(Flag::Unicode)));
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if matches!(ast, Ast::Group(_)) {
            self.is_unicode.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        if let ClassSetItem::Perl(class) = item {
            self.add(class);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_found_where_they_are_classes() {
        let table = [
            (r"\d+\.\D", r"[0-9]+\.[^0-9]"),
            (r"[\w-]é.", r"[[0-9A-Za-z_]-]é."),
            (r"[^\s\]\\d]", r"[^[\x20\t\n\r\f\v]\]\\d]"),
            (r"(?x)[ \s] # \d", r"(?x)[ [\x20\t\n\r\f\v]] # \d"),
            (r"\\d\\\d", r"\\d\\[0-9]"),
            (r"\p{Nd}\x64", r"\p{Nd}\x64"),
            (r"(?u:\d)\d(a(?u)\w|\s)\S", r"(?u:\d)[0-9](a(?u)\w|\s)[^\x20\t\n\r\f\v]"),
            (r"(?u)\d(?-u:\d)", r"(?u)\d(?-u:[0-9])"),
            (r"[a-\d", r"[a-\d"),
            ("d", "d"),
        ];
        for (pattern, ascii) in table {
            assert_eq!(with_ascii_classes(pattern), ascii, "{pattern}");
        }
    }

    #[test]
    fn lark_is_rewritten_within_its_regular_expressions() {
        let text = "start: \"\\\\d\" /\\d\\/\\w/ A /\\d/u\nA: /[ \\s]/x // \\d";
        let bodies = super::super::size::regex_bodies(text).unwrap();
        let ascii = lark_with_ascii_classes(text, &bodies);
        let wanted = "start: \"\\\\d\" /[0-9]\\/[0-9A-Za-z_]/ A /\\d/u\n\
                      A: /[ [\\x20\\t\\n\\r\\f\\v]]/x // \\d";
        assert_eq!(ascii, wanted);
    }
}
