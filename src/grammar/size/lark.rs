//! What a grammar in Lark's notation holds.
//!
//! The text is cut as the library cuts it, as far as literals, names and where a definition begins
//! go: a reading of its own could be led astray.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use playhouse_actors::ports::GrammarError;

/// No terminal that is imported has more.
const MAX_IMPORTED_BYTES: usize = 128;
/// What may hold other grammars and schemas, which would be compiled unseen.
const UNSUPPORTED: [&str; 3] = ["json", "lark", "regex"];

/// What grammars hold, all together where nothing else is said.
#[derive(Debug, Default)]
pub(super) struct LarkSize {
    /// Strings and regular expressions that differ within a grammar.
    pub(super) num_literals: usize,
    pub(super) regex_bytes: usize,
    /// Of the numbers of alternatives of all rules. Those of a terminal are one expression.
    pub(super) squares: usize,
    /// Bytes of the literals in the terminal that has most of them, written out.
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

/// Where the bodies of the regular expressions of a grammar stand, in their order.
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
    /// Whether it becomes one expression, with the terminals that it names written out in it: so
    /// do terminals, rules with attributes, what is negated, and what is ignored.
    is_expression: bool,
    alternatives: usize,
    /// Of its literals.
    bytes: usize,
    /// The terminals that it names.
    terminals: Vec<&'a str>,
}

impl Definition<'_> {
    /// Their names are in capitals.
    fn is_terminal(&self) -> bool {
        self.name.contains(|c: char| c.is_ascii_uppercase())
    }

    fn expanded(&self, sizes: &BTreeMap<&str, usize>) -> usize {
        let size = |name: &&str| sizes.get(*name).copied().unwrap_or(MAX_IMPORTED_BYTES);
        self.terminals.iter().map(size).fold(self.bytes, usize::saturating_add)
    }
}

/// Repetitions are not written out.
fn largest_terminal(definitions: &[Definition<'_>]) -> usize {
    let named: BTreeMap<&str, &Definition<'_>> =
        definitions.iter().map(|definition| (definition.name, definition)).collect();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    // Those in a long chain are visited twice each, before and after what they name.
    let mut open: Vec<(&str, bool)> = named.keys().map(|name| (*name, false)).collect();
    while let Some((name, is_after)) = open.pop() {
        let Some(definition) = named.get(name) else { continue };
        if is_after {
            let size = definition.expanded(&sizes);
            sizes.insert(name, size);
        } else if !sizes.contains_key(name) {
            // What leads back to itself adds nothing there: the library gives up at that place.
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
    /// Those that are over.
    definitions: Vec<Definition<'a>>,
    current: Definition<'a>,
    /// What the next definition begins with, if a colon follows.
    head: Head<'a>,
    /// Brackets that are open.
    depth: usize,
}

/// The last name outside brackets, and what the current definition held before it.
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

    /// Reads what `rest` begins with, the character `c` first. Gives its length.
    fn token(&mut self, c: char, rest: &'a str) -> Result<usize, GrammarError> {
        let body = &rest[c.len_utf8()..];
        Ok(match c {
            '#' => line_len(rest),
            '/' if body.starts_with('/') => line_len(rest),
            '/' => self.literal("/", body),
            // A line ends a string, closed or not.
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

    /// The length of a literal, its quotes included.
    fn literal(&mut self, opening: &'a str, body: &'a str) -> usize {
        let end = closing(body, opening.as_bytes()[0]);
        self.literals.insert((opening, &body[..end]));
        self.current.bytes += end.max(1);
        end + 2
    }

    /// The length of a name, if it is one.
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

    /// A directive begins, with this name first. All but conditions end what came before.
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

    /// A definition that would begin here.
    fn head(&self, name: &'a str, is_expression: bool) -> Head<'a> {
        let (bytes, num_terminals) = (self.current.bytes, self.current.terminals.len());
        Head { name, is_expression, bytes, num_terminals }
    }

    /// The definition begins that `head` tells of.
    fn begin(&mut self) {
        let Head { name, is_expression, bytes, num_terminals } = std::mem::take(&mut self.head);
        let mut next = Definition { name, is_expression, alternatives: 1, ..Definition::default() };
        let is_terminal = next.is_terminal();
        next.is_expression |= is_terminal;
        next.bytes = self.current.bytes - bytes;
        // It does not name itself.
        next.terminals = self.current.terminals.split_off(num_terminals + usize::from(is_terminal));
        self.current.terminals.truncate(num_terminals);
        self.current.bytes = bytes;
        self.definitions.push(std::mem::replace(&mut self.current, next));
    }
}

/// Where `quote` comes unescaped in `body`, or its end.
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

/// Of `<name>` or `<[token]>`, of whatever characters.
fn special_token_len(text: &str) -> usize {
    let body = &text[1..];
    let end = body.find(|c: char| matches!(c, '<' | '>') || c.is_whitespace());
    match end {
        Some(end) if end > 0 && body[end..].starts_with('>') => end + 2,
        _ => 1,
    }
}

/// How many bytes `text` begins with that are of a kind.
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
    fn what_would_be_compiled_unseen_is_refused() {
        for directive in UNSUPPORTED {
            let error = LarkSize::default().add(&format!("start: %{directive}{{}}")).unwrap_err();
            assert!(error.to_string().contains(directive), "{error}");
            size(&format!("start: \"%{directive}\" /%{directive}/ // %{directive}"));
        }
        size("%llguidance {\"a\": 1}\nstart: a::0\na::_: \"b\" %if eq(_, 0) | \"c\"");
    }
}
