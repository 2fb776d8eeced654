//! GBNF, llama.cpp's grammar notation, which xgrammar and therefore vLLM take:
//! `root ::= "yes" | "no" [a-z]+`.
//!
//! Before it parses, llguidance cuts a text into lexemes, each as long as possible. It would cut
//! wrongly between two lexemes that match the same characters. So each regular part becomes one
//! lexeme as a whole: rules without recursion, and runs of regular parts within rules with
//! recursion.

mod parse;

use std::fmt::Write;

use playhouse_actors::ports::GrammarError;

use super::lark::quoted;

/// A grammar's rules, in the order in which they are first named.
struct Grammar {
    rules: Vec<Rule>,
}

struct Rule {
    name: String,
    /// `None` if a rule names it and the text does not define it.
    body: Option<Node>,
}

/// A part of the right side of a rule.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(String),
    /// A character of these, as a regular expression.
    Class(String),
    /// The rule of this index.
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    /// The smallest and the largest number of repetitions.
    Repeat(Box<Node>, u32, Option<u32>),
}

/// Returns whether a text is GBNF rather than Lark.
pub(super) fn is_gbnf(text: &str) -> bool {
    text.lines().any(|line| {
        let name = line.split_once("::=").map(|(name, _)| name.trim());
        name.is_some_and(|name| !name.is_empty() && name.chars().all(parse::is_name))
    })
}

/// Returns the same grammar in Lark, beginning with the rule `root`.
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
    /// Returns for each rule whether it is regular: all rules that it names are regular too.
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

/// A Lark grammar being written.
struct Lark<'a> {
    regular: &'a [bool],
    text: String,
    num_runs: usize,
}

impl Lark<'_> {
    /// Returns the name of a rule. Names of terminals are in capitals.
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

    /// Returns a node of a rule that is parsed.
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

    /// Returns a terminal of its own.
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

/// Returns a regular node within a terminal.
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
