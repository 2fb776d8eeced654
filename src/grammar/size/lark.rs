//! The size of a grammar in Lark's notation.
//!
//! Literals, names and the beginnings of definitions are found exactly as the library finds them.
//! Otherwise a grammar could hide its size from this count.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use playhouse_actors::ports::GrammarError;

/// An upper limit for each terminal that may be imported.
const MAX_IMPORTED_BYTES: usize = 128;
/// Directives that may hold other grammars and schemas, which would be compiled without this check.
const UNSUPPORTED: [&str; 3] = ["json", "lark", "regex"];

/// The size of grammars, summed over all of them unless a field says otherwise.
#[derive(Debug, Default)]
pub(super) struct LarkSize {
    /// Different strings and regular expressions within a grammar.
    pub(super) num_literals: usize,
    pub(super) regex_bytes: usize,
    /// Sum of the squares of all rules' numbers of alternatives. A terminal's alternatives are one
    /// expression.
    pub(super) squares: usize,
    /// Bytes of the literals in the largest terminal, expanded.
    pub(super) largest_terminal: usize,
}

impl LarkSize {
    /// Counts a grammar.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] for directives that are not supported.
    pub(super) fn add(&mut self, text: &str) -> Result<(), GrammarError> {
        let Scan { literals, definitions, .. } = Scan::of(text)?;
        self.num_literals += literals.len();
        let regexes = literals.iter().filter(|(opening, _)| *opening == "/");
        self.regex_bytes += regexes.map(|(_, regex)| regex.len()).sum::<usize>();
        let rules = definitions.iter().filter(|definition| !definition.is_terminal());
        self.squares += rules.map(|rule| rule.alternatives * rule.alternatives).sum::<usize>();
        self.largest_terminal = self.largest_terminal.max(largest_terminal(&definitions));
        Ok(())
    }
}

/// Returns the ranges of the bodies of a grammar's regular expressions, in order.
///
/// # Errors
/// As [`LarkSize::add`].
pub(in super::super) fn regex_bodies(text: &str) -> Result<Vec<Range<usize>>, GrammarError> {
    Ok(Scan::of(text)?.regexes)
}

/// A rule, a terminal or a directive.
#[derive(Default)]
struct Definition<'a> {
    name: &'a str,
    /// Whether it becomes one expression, in which the named terminals are expanded. Terminals,
    /// rules with attributes, negated parts and ignored parts do.
    is_expression: bool,
    alternatives: usize,
    /// Bytes of its literals.
    bytes: usize,
    /// The terminals that it names.
    terminals: Vec<&'a str>,
}

impl Definition<'_> {
    /// Returns whether this is a terminal: terminals have names in capitals.
    fn is_terminal(&self) -> bool {
        self.name.contains(|c: char| c.is_ascii_uppercase())
    }

    fn expanded(&self, sizes: &BTreeMap<&str, usize>) -> usize {
        let size = |name: &&str| sizes.get(*name).copied().unwrap_or(MAX_IMPORTED_BYTES);
        self.terminals.iter().map(size).fold(self.bytes, usize::saturating_add)
    }
}

/// Returns the bytes of the largest expanded terminal. Repetitions are not expanded.
fn largest_terminal(definitions: &[Definition<'_>]) -> usize {
    let named: BTreeMap<&str, &Definition<'_>> =
        definitions.iter().map(|definition| (definition.name, definition)).collect();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    // Each is visited twice, before and after the terminals that it names. A stack on the heap
    // holds long chains.
    let mut open: Vec<(&str, bool)> = named.keys().map(|name| (*name, false)).collect();
    while let Some((name, is_after)) = open.pop() {
        let Some(definition) = named.get(name) else { continue };
        if is_after {
            let size = definition.expanded(&sizes);
            sizes.insert(name, size);
        } else if !sizes.contains_key(name) {
            // A terminal that leads back to itself adds nothing, because the library stops there.
            sizes.insert(name, 0);
            open.push((name, true));
            open.extend(definition.terminals.iter().map(|name| (*name, false)));
        }
    }
    let expressions = definitions.iter().filter(|definition| definition.is_expression);
    expressions.map(|definition| definition.expanded(&sizes)).max().unwrap_or_default()
}

/// Reads a grammar from end to end.
#[derive(Default)]
struct Scan<'a> {
    literals: BTreeSet<(&'a str, &'a str)>,
    /// The bodies of all regular expressions.
    regexes: Vec<Range<usize>>,
    /// Finished definitions.
    definitions: Vec<Definition<'a>>,
    current: Definition<'a>,
    /// The beginning of the next definition, if a colon follows.
    head: Head<'a>,
    /// Number of open brackets.
    depth: usize,
}

/// The last name outside brackets, and the content of the current definition before it.
#[derive(Default)]
struct Head<'a> {
    name: &'a str,
    is_expression: bool,
    bytes: usize,
    num_terminals: usize,
}

impl<'a> Scan<'a> {
    fn of(text: &'a str) -> Result<Self, GrammarError> {
        let (mut scan, mut rest) = (Self::default(), text);
        while let Some(c) = rest.chars().next() {
            let place = text.len() - rest.len();
            let len = scan.token(c, rest)?;
            if c == '/' && !rest.starts_with("//") {
                scan.regexes.push(place + 1..(place + len).min(text.len() + 1) - 1);
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        scan.definitions.push(std::mem::take(&mut scan.current));
        Ok(scan)
    }

    /// Reads the token at the beginning of `rest`, whose first character is `c`. Returns its
    /// length.
    fn token(&mut self, c: char, rest: &'a str) -> Result<usize, GrammarError> {
        let body = &rest[c.len_utf8()..];
        Ok(match c {
            '#' => line_len(rest),
            '/' if body.starts_with('/') => line_len(rest),
            '/' => self.literal("/", body),
            // A line break ends a string, closed or not.
            '"' => self.literal("\"", &body[..line_len(body)]),
            '<' => special_token_len(rest),
            '@' => 1 + count(body, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')),
            '%' => {
                self.directive(body)?;
                1
            }
            '(' | '[' | '{' => {
                self.head.is_expression |= c == '[' && self.depth == 0;
                self.depth += 1;
                1
            }
            ')' | ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                1
            }
            ':' if body.starts_with(':') => 2,
            ':' => {
                if self.depth == 0 {
                    self.begin();
                }
                1
            }
            '|' => {
                self.current.alternatives += 1;
                1
            }
            '~' => {
                self.current.is_expression = true;
                1
            }
            '_' | 'a'..='z' | 'A'..='Z' => self.name(rest),
            c => c.len_utf8(),
        })
    }

    /// Adds the literal at the beginning of a text. Returns its length, including its quotes.
    fn literal(&mut self, opening: &'a str, body: &'a str) -> usize {
        let end = closing(body, opening.as_bytes()[0]);
        self.literals.insert((opening, &body[..end]));
        self.current.bytes += end.max(1);
        end + 2
    }

    /// Reads a name. Returns its length, or that of one character if there is no name.
    fn name(&mut self, rest: &'a str) -> usize {
        let start = usize::from(rest.starts_with('_'));
        let is_terminal = match rest.as_bytes().get(start) {
            Some(b'A'..=b'Z') => true,
            Some(b'a'..=b'z') => false,
            _ => return 1,
        };
        let is_part = |b: u8| match b {
            b'_' | b'-' | b'0'..=b'9' => true,
            b => b.is_ascii_alphabetic() && b.is_ascii_uppercase() == is_terminal,
        };
        let len = start + count(&rest[start..], is_part);
        if self.depth == 0 {
            self.head = self.head(&rest[..len], false);
        }
        if is_terminal {
            self.current.terminals.push(&rest[..len]);
        }
        len
    }

    /// Begins a directive whose first name is `name`. All directives except conditions end the
    /// definition before them.
    fn directive(&mut self, name: &str) -> Result<(), GrammarError> {
        if let Some(name) = UNSUPPORTED.iter().find(|unsupported| name.starts_with(**unsupported)) {
            return Err(GrammarError::Invalid(format!(
                "`%{name}` is not supported in a grammar: a structural tag can hold schemas and \
                 grammars together"
            )));
        }
        if !name.starts_with("if") {
            self.head = self.head("", true);
            self.begin();
        }
        Ok(())
    }

    /// Returns the head of a definition that would begin here.
    fn head(&self, name: &'a str, is_expression: bool) -> Head<'a> {
        let (bytes, num_terminals) = (self.current.bytes, self.current.terminals.len());
        Head { name, is_expression, bytes, num_terminals }
    }

    /// Begins the definition that `head` describes.
    fn begin(&mut self) {
        let Head { name, is_expression, bytes, num_terminals } = std::mem::take(&mut self.head);
        let mut next = Definition { name, is_expression, alternatives: 1, ..Definition::default() };
        let is_terminal = next.is_terminal();
        next.is_expression |= is_terminal;
        next.bytes = self.current.bytes - bytes;
        // A definition does not name itself.
        next.terminals = self.current.terminals.split_off(num_terminals + usize::from(is_terminal));
        self.current.terminals.truncate(num_terminals);
        self.current.bytes = bytes;
        self.definitions.push(std::mem::replace(&mut self.current, next));
    }
}

/// Returns the position of the first unescaped `quote` in `body`, or the end of `body`.
fn closing(body: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    let place = body.bytes().position(|byte| {
        let found = byte == quote && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        found
    });
    place.unwrap_or(body.len())
}

fn line_len(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Returns the length of `<name>` or `<[token]>`, which may hold any characters.
fn special_token_len(text: &str) -> usize {
    let body = &text[1..];
    let end = body.find(|c: char| matches!(c, '<' | '>') || c.is_whitespace());
    match end {
        Some(end) if end > 0 && body[end..].starts_with('>') => end + 2,
        _ => 1,
    }
}

/// Returns the number of bytes of that kind at the beginning of `text`.
fn count(text: &str, is_of_kind: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| is_of_kind(*byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> LarkSize {
        let mut size = LarkSize::default();
        size.add(text).unwrap();
        size
    }

    #[test]
    fn literals_count_once_and_comments_not_at_all() {
        let text = "start: \"a\" | \"a\" b /x\\/y/ // \"c\"\nb: \"\\\"\" | \"d # e\" # /f/\n";
        let num_literals = |text| size(text).num_literals;
        assert_eq!(num_literals(text), 4);
        assert_eq!(num_literals("a: \"open\nb: /open"), 2);
        assert_eq!(num_literals("a: <\"> \"b\" <[1]> \"c\""), 2);
        assert_eq!(num_literals(""), 0);
        assert_eq!(size("a: /b\n\"c/ /d#/").regex_bytes, 4 + 2);
    }

    #[test]
    fn alternatives_count_by_rule_however_it_is_laid_out() {
        let squares = |text| size(text).squares;
        assert_eq!(squares("a: b | c | \"|\""), 9);
        assert_eq!(squares("a: b\n | c\n | d"), 9);
        assert_eq!(squares("a: b | c\nb: d\nC: \"x\" | \"y\" | \"z\""), 4 + 1);
        assert_eq!(squares("a[stop=\"x\"]: /[:|]/ | b <|c|>\n%import common.D E: F | G"), 4 + 1);
    }

    #[test]
    fn a_terminal_is_as_large_as_all_that_it_names() {
        let largest = |text| size(text).largest_terminal;
        assert_eq!(largest("start: A A\nA: \"12\" B{7} B | (B)\nB: \"345\""), 2 + 3 * 3);
        assert_eq!(largest("start: \"12\" A A\nA: \"3\""), 1, "a rule names them");
        assert_eq!(largest("start: ~(A A)\nA: \"345\""), 6);
        assert_eq!(largest("start[stop=A]: /12/ A\nA: \"345\""), 2 + 6);
        assert_eq!(largest("start: A \"1\"\n%ignore A | A A\nA: \"345\""), 9);
        assert_eq!(largest("%import common (A)\nB: A A"), 2 * MAX_IMPORTED_BYTES);
        assert_eq!(largest("A: \"1\" B B\nB: \"2\" A"), 2 * 2 + 1, "it leads back to itself");
        assert_eq!(largest("aB: \"1\"\nA_-0: \"22\""), 2);
    }

    #[test]
    fn terminals_may_double_and_lie_deep() {
        let chain = |body: &dyn Fn(usize) -> String| {
            let lines: Vec<String> = (0..100_000).map(|i| format!("A{i}: {}", body(i))).collect();
            size(&lines.join("\n")).largest_terminal
        };
        let deep = chain(&|i| format!("\"x\" A{}", i + 1));
        assert_eq!(deep, 100_000 + MAX_IMPORTED_BYTES);
        assert_eq!(chain(&|i| format!("A{} A{}", i + 1, i + 1)), usize::MAX);
    }

    #[test]
    fn embedded_grammars_are_rejected() {
        for directive in UNSUPPORTED {
            let error = LarkSize::default().add(&format!("start: %{directive}{{}}")).unwrap_err();
            assert!(error.to_string().contains(directive), "{error}");
            size(&format!("start: \"%{directive}\" /%{directive}/ // %{directive}"));
        }
        size("%llguidance {\"a\": 1}\nstart: a::0\na::_: \"b\" %if eq(_, 0) | \"c\"");
    }
}
