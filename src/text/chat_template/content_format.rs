//! Whether a template takes message content as text or as a list of parts.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{Expr, ForLoop, Set, Stmt};
use minijinja::machinery::parse;

use super::environment;

/// How a template wants `message.content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One string; the text parts of a list are joined by line breaks.
    String,
    /// A list of parts, as the OpenAI API has it; a string becomes one part.
    OpenAi,
}

impl ContentFormat {
    /// Returns `OpenAi` if the template loops over the content of a message in `messages`. The rule
    /// is vLLM's. A template that does not parse takes a string.
    pub(super) fn of(template: &str) -> Self {
        match parse(template, "<template>", environment::syntax()) {
            Ok(tree) if loops_over_content(&tree) => Self::OpenAi,
            _ => Self::String,
        }
    }
}

fn loops_over_content(tree: &Stmt<'_>) -> bool {
    let mut found = Statements::default();
    found.visit(tree);

    // `messages`, and every variable that was made from it.
    let mut message_lists = BTreeSet::from(["messages"]);
    loop {
        let known = message_lists.len();
        for set in &found.sets {
            if let (Some(source), Some(target)) = (list_name(&set.expr), variable(&set.target))
                && message_lists.contains(source)
            {
                message_lists.insert(target);
            }
        }
        if message_lists.len() == known {
            break;
        }
    }
    let messages: BTreeSet<&str> = found
        .loops
        .iter()
        .filter(|node| list_name(&node.iter).is_some_and(|name| message_lists.contains(name)))
        .filter_map(|node| variable(&node.target))
        .collect();
    let mut owners = found.loops.iter().filter_map(|node| content_owner(&node.iter));
    owners.any(|name| messages.contains(name))
}

/// The statements of a template that matter here, at any depth.
#[derive(Default)]
struct Statements<'t, 's> {
    loops: Vec<&'t ForLoop<'s>>,
    sets: Vec<&'t Set<'s>>,
}

impl<'t, 's> Statements<'t, 's> {
    fn visit(&mut self, statement: &'t Stmt<'s>) {
        match statement {
            Stmt::Template(node) => self.visit_all(&node.children),
            Stmt::ForLoop(node) => {
                self.loops.push(node);
                self.visit_all(&node.body);
                self.visit_all(&node.else_body);
            }
            Stmt::IfCond(node) => {
                self.visit_all(&node.true_body);
                self.visit_all(&node.false_body);
            }
            Stmt::Set(node) => self.sets.push(node),
            Stmt::SetBlock(node) => self.visit_all(&node.body),
            Stmt::WithBlock(node) => self.visit_all(&node.body),
            Stmt::AutoEscape(node) => self.visit_all(&node.body),
            Stmt::FilterBlock(node) => self.visit_all(&node.body),
            Stmt::Block(node) => self.visit_all(&node.body),
            Stmt::Macro(node) => self.visit_all(&node.body),
            Stmt::CallBlock(node) => self.visit_all(&node.macro_decl.body),
            _ => {}
        }
    }

    fn visit_all(&mut self, statements: &'t [Stmt<'s>]) {
        for statement in statements {
            self.visit(statement);
        }
    }
}

/// Returns `messages` for `messages[1:] | reverse`: the expression without its selections.
fn underlying<'t, 's>(expr: &'t Expr<'s>) -> &'t Expr<'s> {
    match expr {
        Expr::Filter(node) => node.expr.as_ref().map_or(expr, underlying),
        Expr::Test(node) => underlying(&node.expr),
        Expr::Slice(node) => underlying(&node.expr),
        _ => expr,
    }
}

fn list_name<'s>(expr: &Expr<'s>) -> Option<&'s str> {
    variable(underlying(expr))
}

fn variable<'s>(expr: &Expr<'s>) -> Option<&'s str> {
    match expr {
        Expr::Var(node) => Some(node.id),
        _ => None,
    }
}

/// Returns `message` for `message.content` and `message["content"]`.
fn content_owner<'s>(expr: &Expr<'s>) -> Option<&'s str> {
    match underlying(expr) {
        Expr::GetAttr(node) if node.name == "content" => variable(&node.expr),
        Expr::GetItem(node) => match &node.subscript_expr {
            Expr::Const(key) if key.value.as_str() == Some("content") => variable(&node.expr),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::ContentFormat;

    /// The outcomes are those of vLLM's rule, spelled out case by case.
    #[test]
    fn a_loop_over_the_content_of_a_message_asks_for_parts() {
        let parts = [
            "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "{% for m in messages[1:] %}{% for c in m['content'] | list %}{% endfor %}{% endfor %}",
            "{% set rest = messages[1:] %}{% set all = rest %}{% for m in all %}\
             {% if m.content is not string %}{% for c in m['content'] %}{{ c.text }}\
             {% endfor %}{% endif %}{% endfor %}",
        ];
        for template in parts {
            assert_eq!(ContentFormat::of(template), ContentFormat::OpenAi, "{template}");
        }
        let text = [
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}",
            "{% for m in others %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "{% macro show(content) %}{% for c in content %}{% endfor %}{% endmacro %}\
             {% for m in messages %}{{ show(m.content) }}{% endfor %}",
            "{% for m in messages %}{% for c in m.content",
        ];
        for template in text {
            assert_eq!(ContentFormat::of(template), ContentFormat::String, "{template}");
        }
    }
}
