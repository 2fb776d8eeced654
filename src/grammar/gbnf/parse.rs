//! Reads GBNF. The end of a rule does not depend on lines: the next rule begins with `name ::=`.

use std::{collections::BTreeMap, iter::Peekable, str::CharIndices};

use playhouse_actors::ports::GrammarError;

use super::{Grammar, Node, Rule, invalid};

/// Deepest nesting of parentheses. llguidance's own limit is a little higher.
const MAX_NESTING: usize = 24;
/// Largest number of repetitions of a part.
const MAX_REPEAT: u32 = 100_000;

/// Returns whether a character may stand in the name of a rule.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Returns the rules of a text.
///
/// # Errors
/// [`GrammarError::Invalid`] names the line and what was expected there.
pub(super) fn grammar(text: &str) -> Result<Grammar, GrammarError> {
    let mut parser = Parser {
        text,
        chars: text.char_indices().peekable(),
        depth: 0,
        indices: BTreeMap::new(),
        grammar: Grammar { rules: Vec::new() },
    };
    parser.skip_space();
    while parser.peek().is_some() {
        parser.rule()?;
    }
    Ok(parser.grammar)
}

struct Parser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    depth: usize,
    /// Indices of the rules by name.
    indices: BTreeMap<String, usize>,
    grammar: Grammar,
}

impl Parser<'_> {
    fn rule(&mut self) -> Result<(), GrammarError> {
        let name = self.name();
        if name.is_empty() {
            return Err(self.expected("the name of a rule"));
        }
        self.skip_space();
        if !self.rest().starts_with("::=") {
            return Err(self.expected("`::=`"));
        }
        self.chars.nth(2);
        self.skip_space();
        let body = self.choice()?;
        if self.peek() == Some(')') {
            return Err(self.expected("a part of a rule"));
        }
        let index = self.index_of(name);
        let rule = &mut self.grammar.rules[index];
        if rule.body.is_some() {
            return Err(invalid(format!("the grammar has two rules `{}`", rule.name)));
        }
        rule.body = Some(body);
        Ok(())
    }

    fn choice(&mut self) -> Result<Node, GrammarError> {
        let mut options = vec![self.sequence()?];
        while self.take('|') {
            self.skip_space();
            options.push(self.sequence()?);
        }
        Ok(if options.len() == 1 { options.swap_remove(0) } else { Node::Choice(options) })
    }

    fn sequence(&mut self) -> Result<Node, GrammarError> {
        let mut parts = Vec::new();
        while let Some(part) = self.part()? {
            parts.push(self.repeated(part)?);
            self.skip_space();
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Node::Sequence(parts) })
    }

    /// Reads the next part. Returns `None` at the end of the sequence.
    fn part(&mut self) -> Result<Option<Node>, GrammarError> {
        let node = match self.peek() {
            None | Some('|' | ')') => return Ok(None),
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('.') => {
                self.chars.next();
                Node::Class(r"(?s:.)".to_owned())
            }
            Some('(') => self.group()?,
            Some(c) if is_name(c) => {
                let before = self.chars.clone();
                let name = self.name();
                let after = self.chars.clone();
                self.skip_space();
                if self.rest().starts_with("::=") {
                    self.chars = before;
                    return Ok(None);
                }
                self.chars = after;
                Node::Rule(self.index_of(name))
            }
            Some(_) => return Err(self.expected("a part of a rule")),
        };
        Ok(Some(node))
    }

    fn group(&mut self) -> Result<Node, GrammarError> {
        self.chars.next();
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.expected(&format!("at most {MAX_NESTING} nested parentheses")));
        }
        self.skip_space();
        let inner = self.choice()?;
        if !self.take(')') {
            return Err(self.expected("`)`"));
        }
        self.depth -= 1;
        Ok(inner)
    }

    /// Reads `*`, `+`, `?` and `{m,n}` after a part, also after white space, as llama.cpp does.
    fn repeated(&mut self, part: Node) -> Result<Node, GrammarError> {
        self.skip_space();
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(part),
            _ => return Ok(part),
        };
        self.chars.next();
        Ok(Node::Repeat(Box::new(part), min, max))
    }

    fn counted(&mut self, part: Node) -> Result<Node, GrammarError> {
        self.chars.next();
        let min = self.number()?;
        let max = match self.take(',') {
            false => min,
            true => self.number()?,
        };
        if !self.take('}') {
            return Err(self.expected("`}`"));
        }
        let is_range = min.is_some() || max.is_some();
        let is_ordered = max.is_none_or(|max| min.unwrap_or(0) <= max);
        if !is_range || !is_ordered {
            return Err(self.expected("`{m}`, `{m,}` or `{m,n}` with m not above n, before"));
        }
        Ok(Node::Repeat(Box::new(part), min.unwrap_or(0), max))
    }

    fn number(&mut self) -> Result<Option<u32>, GrammarError> {
        self.skip_space();
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.chars.next();
        }
        self.skip_space();
        match digits.parse() {
            _ if digits.is_empty() => Ok(None),
            Ok(number) if number <= MAX_REPEAT => Ok(Some(number)),
            _ => Err(self.expected(&format!("at most {MAX_REPEAT} repetitions"))),
        }
    }

    fn literal(&mut self) -> Result<Node, GrammarError> {
        self.chars.next();
        let mut literal = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.expected("the end of a string")),
                Some('"') => break,
                Some(_) => literal.push(self.character()?),
            }
        }
        self.chars.next();
        Ok(Node::Literal(literal))
    }

    /// Reads a class (`[a-z]`, `[^"\\]`) as a regular expression.
    fn class(&mut self) -> Result<Node, GrammarError> {
        self.chars.next();
        let mut class = String::from("[");
        if self.take('^') {
            class.push('^');
        }
        let empty = class.len();
        while self.peek() != Some(']') {
            let first = self.character()?;
            let last = match self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                true => {
                    self.chars.next();
                    self.character()?
                }
                false => first,
            };
            if last < first {
                return Err(self.expected("a range in order, before"));
            }
            class.push_str(&format!(r"\x{{{:x}}}-\x{{{:x}}}", u32::from(first), u32::from(last)));
        }
        self.chars.next();
        match class.len() == empty {
            true => Err(self.expected("a character within `[]`, before")),
            false => Ok(Node::Class(class + "]")),
        }
    }

    /// Reads one character of a string or a class, which may be escaped.
    fn character(&mut self) -> Result<char, GrammarError> {
        let end = "the end of a string or a class";
        let c = self.chars.next().map(|(_, c)| c).ok_or_else(|| self.expected(end))?;
        if c != '\\' {
            return Ok(c);
        }
        let escaped = self.chars.next().map(|(_, c)| c).ok_or_else(|| self.expected(end))?;
        Ok(match escaped {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'x' => self.code_point(2)?,
            'u' => self.code_point(4)?,
            'U' => self.code_point(8)?,
            c if c.is_ascii_punctuation() => c,
            _ => return Err(self.expected("a known escape, before")),
        })
    }

    fn code_point(&mut self, num_digits: usize) -> Result<char, GrammarError> {
        let digits: String = self.chars.by_ref().take(num_digits).map(|(_, c)| c).collect();
        let is_hex = digits.len() == num_digits && digits.chars().all(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
        code.and_then(char::from_u32)
            .ok_or_else(|| self.expected(&format!("{num_digits} hexadecimal digits, before")))
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|&c| is_name(c)) {
            name.push(c);
            self.chars.next();
        }
        name
    }

    fn index_of(&mut self, name: String) -> usize {
        let (next, rules) = (self.grammar.rules.len(), &mut self.grammar.rules);
        *self.indices.entry(name).or_insert_with_key(|name| {
            rules.push(Rule { name: name.clone(), body: None });
            next
        })
    }

    /// Skips white space, and comments from `#` to the end of the line.
    fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.chars.next();
                }
            } else if !c.is_whitespace() {
                return;
            } else {
                self.chars.next();
            }
        }
    }

    fn take(&mut self, c: char) -> bool {
        self.chars.next_if(|&(_, next)| next == c).is_some()
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|&(_, c)| c)
    }

    fn rest(&mut self) -> &str {
        &self.text[self.position()..]
    }

    fn position(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |&(position, _)| position)
    }

    fn expected(&mut self, what: &str) -> GrammarError {
        let line = self.text[..self.position()].lines().count().max(1);
        let rest: String = self.rest().chars().take(20).collect();
        invalid(format!("line {line} of the grammar: expected {what} at {rest:?}"))
    }
}
