//! GBNF, the grammar notation of llama.cpp, which xgrammar and with it vLLM take:
//! `root ::= "yes" | "no" [a-z]+`.
//!
//! llguidance cuts a text into lexemes, each as long as it can be, before it parses: two of them in
//! a row that the same characters fit would be cut wrongly. So what is regular becomes one lexeme as
//! a whole: all rules that do not lead back to themselves, and runs of such parts within those that
//! do.

mod parse;

use std::fmt::Write;

use playhouse_actors::ports::GrammarError;

use super::lark::quoted;

/// A grammar's rules; the first to be named comes first.
struct Grammar {
    rules: Vec<Rule>,
}

struct Rule {
    name: String,
    /// `None`: named by another, but never said.
    body: Option<Node>,
}

/// What may stand on the right of a rule.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(String),
    /// A character of these, as a regular expression.
    Class(String),
    /// The rule of this index.
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    /// So many times: at least, at most.
    Repeat(Box<Node>, u32, Option<u32>),
}

/// Whether a text is GBNF rather than Lark.
pub(super) fn is_gbnf(text: &str) -> bool {
    text.lines().any(|line| {
        let name = line.split_once("::=").map(|(name, _)| name.trim());
        name.is_some_and(|name| !name.is_empty() && name.chars().all(parse::is_name))
    })
}

/// The same grammar in Lark, beginning with the rule `root`.
///
/// # Errors
/// [`GrammarError`] names the line, or the rule that is missing.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let grammar = parse::grammar(text)?;
    let root = grammar.rules.iter().position(|rule| rule.name == "root" && rule.body.is_some());
    let root = root.ok_or_else(|| invalid("the grammar has no rule `root`".to_owned()))?;
    let regular = grammar.regular();
    let mut lark = Lark { regular: &regular, text: String::new(), num_runs: 0 };
    let start = lark.name(root);
    lark.rule("start", &start);
    for (index, rule) in grammar.rules.iter().enumerate() {
        let Some(body) = &rule.body else {
            return Err(invalid(format!("the grammar has no rule `{}`", rule.name)));
        };
        let body = match regular[index] {
            true => expression(body),
            false => lark.parsed(body),
        };
        let name = lark.name(index);
        lark.rule(&name, &body);
    }
    Ok(lark.text)
}

impl Grammar {
    /// Which rules lead to no recursion: those of which all that they name is regular.
    fn regular(&self) -> Vec<bool> {
        let mut named_by = vec![Vec::new(); self.rules.len()];
        let mut num_open = vec![0; self.rules.len()];
        for (index, rule) in self.rules.iter().enumerate() {
            rule.body.iter().for_each(|body| {
                body.for_each_rule(&mut |named| {
                    named_by[named].push(index);
                    num_open[index] += 1;
                });
            });
        }
        let mut ready: Vec<usize> = (0..num_open.len()).filter(|&i| num_open[i] == 0).collect();
        let mut regular = vec![false; num_open.len()];
        while let Some(index) = ready.pop() {
            regular[index] = true;
            for &user in &named_by[index] {
                num_open[user] -= 1;
                if num_open[user] == 0 {
                    ready.push(user);
                }
            }
        }
        regular
    }
}

impl Node {
    fn for_each_rule(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Self::Rule(index) => visit(*index),
            Self::Sequence(nodes) | Self::Choice(nodes) => {
                nodes.iter().for_each(|node| node.for_each_rule(visit));
            }
            Self::Repeat(node, ..) => node.for_each_rule(visit),
            Self::Literal(_) | Self::Class(_) => {}
        }
    }

    fn is_regular(&self, regular: &[bool]) -> bool {
        let mut all = true;
        self.for_each_rule(&mut |index| all &= regular[index]);
        all
    }
}

/// A grammar in Lark as it is written.
struct Lark<'a> {
    regular: &'a [bool],
    text: String,
    num_runs: usize,
}

impl Lark<'_> {
    /// Terminals are in capitals.
    fn name(&self, rule: usize) -> String {
        match self.regular[rule] {
            true => terminal(rule),
            false => format!("r{rule}"),
        }
    }

    fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// A node of a rule that is parsed.
    fn parsed(&mut self, node: &Node) -> String {
        if node.is_regular(self.regular) {
            return self.run(expression(node));
        }
        match node {
            Node::Rule(index) => self.name(*index),
            Node::Sequence(nodes) => {
                let runs =
                    nodes.chunk_by(|a, b| a.is_regular(self.regular) && b.is_regular(self.regular));
                let runs: Vec<&[Node]> = runs.collect();
                let parts = runs.into_iter().map(|run| match run {
                    [node] => self.parsed(node),
                    run => self.run(sequence(run.iter().map(expression))),
                });
                sequence(parts)
            }
            Node::Choice(nodes) => choice(nodes.iter().map(|node| self.parsed(node))),
            Node::Repeat(node, min, max) => repeated(&self.parsed(node), *min, *max),
            Node::Literal(_) | Node::Class(_) => expression(node),
        }
    }

    /// A terminal of its own.
    fn run(&mut self, body: String) -> String {
        let name = format!("X{}", self.num_runs);
        self.num_runs += 1;
        self.rule(&name, &body);
        name
    }
}

fn terminal(rule: usize) -> String {
    format!("T{rule}")
}

/// A regular node within a terminal.
fn expression(node: &Node) -> String {
    match node {
        Node::Literal(text) => quoted(text),
        Node::Class(class) => format!("/{class}/"),
        Node::Rule(index) => terminal(*index),
        Node::Sequence(nodes) => sequence(nodes.iter().map(expression)),
        Node::Choice(nodes) => choice(nodes.iter().map(expression)),
        Node::Repeat(node, min, max) => repeated(&expression(node), *min, *max),
    }
}

fn sequence(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => "\"\"".to_owned(),
        false => parts.join(" "),
    }
}

fn choice(options: impl Iterator<Item = String>) -> String {
    format!("({})", options.collect::<Vec<_>>().join(" | "))
}

fn repeated(part: &str, min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (_, Some(0)) => "\"\"".to_owned(),
        (0, None) => format!("({part})*"),
        (1, None) => format!("({part})+"),
        (0, Some(1)) => format!("({part})?"),
        (min, None) => format!("({part}){{{min},}}"),
        (min, Some(max)) => format!("({part}){{{min},{max}}}"),
    }
}

fn invalid(message: String) -> GrammarError {
    GrammarError::Invalid(message)
}
