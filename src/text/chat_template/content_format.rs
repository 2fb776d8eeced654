//! Whether a template takes message content as text or as a list of parts.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{Call, CallArg, Expr, ForLoop, Macro, Set, Stmt};
use minijinja::machinery::parse;

use super::environment;

/// The field of a message, and the variable that many templates keep it in.
const CONTENT: &str = "content";

/// How a template wants `message.content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One string; the text parts of a list are joined by line breaks.
    String,
    /// A list of parts, as the OpenAI API has it; a string becomes one part.
    OpenAi,
}

impl ContentFormat {
    /// Returns `OpenAi` if the template loops over the content of a message in `messages`, or hands
    /// it to a macro that does. A loop over a variable `content` counts, too. The rule is vLLM's. A
    /// template that does not parse takes a string.
    pub(super) fn of(template: &str) -> Self {
        match parse(template, "<template>", environment::syntax()) {
            Ok(tree) if loops_over_content(&tree) => Self::OpenAi,
            _ => Self::String,
        }
    }
}

fn loops_over_content(tree: &Stmt<'_>) -> bool {
    let mut found = Statements::default();
    found.visit(tree, None);
    let lists = found.message_lists();
    let loops = found.loops.iter().map(|each| each.node);
    let over_messages =
        loops.filter(|node| list_name(&node.iter).is_some_and(|name| lists.contains(&name)));
    let messages: BTreeSet<&str> =
        over_messages.filter_map(|node| variable(&node.target)).collect();
    let is_content =
        |expr: &Expr<'_>| content_owner(expr).is_some_and(|name| messages.contains(name));
    found.loops.iter().any(|Loop { node, within }| {
        is_content(&node.iter)
            || match (variable(&node.iter), within) {
                (Some(name), Some(within)) => found.gives(within, name, is_content),
                (Some(name), None) => name == CONTENT,
                (None, _) => false,
            }
    })
}

/// The statements and calls of a template that matter here, at any depth.
#[derive(Default)]
struct Statements<'t, 's> {
    loops: Vec<Loop<'t, 's>>,
    sets: Vec<&'t Set<'s>>,
    calls: Vec<&'t Call<'s>>,
}

struct Loop<'t, 's> {
    node: &'t ForLoop<'s>,
    /// The innermost macro that holds the loop.
    within: Option<&'t Macro<'s>>,
}

impl<'t, 's> Statements<'t, 's> {
    /// Returns `messages`, and every variable and attribute of a namespace that is made from it.
    fn message_lists(&self) -> BTreeSet<String> {
        let mut lists = BTreeSet::from(["messages".to_owned()]);
        loop {
            let known = lists.len();
            for set in &self.sets {
                let names = aliases(set, &lists);
                lists.extend(names);
            }
            if lists.len() == known {
                return lists;
            }
        }
    }

    /// Returns whether a call gives the argument `name` of a macro a value that `is_content`.
    fn gives(&self, to: &Macro<'_>, name: &str, is_content: impl Fn(&Expr<'_>) -> bool) -> bool {
        let place = to.args.iter().position(|arg| variable(arg) == Some(name));
        let mut calls = self.calls.iter().filter(|call| variable(&call.expr) == Some(to.name));
        let gives = |call: &Call<'_>, place: usize| {
            let by_place = call.args.iter().filter_map(|arg| match arg {
                CallArg::Pos(value) => Some(value),
                _ => None,
            });
            let by_name = call.args.iter().filter_map(|arg| match arg {
                CallArg::Kwarg(key, value) if *key == name => Some(value),
                _ => None,
            });
            by_place.skip(place).take(1).chain(by_name).any(&is_content)
        };
        place.is_some_and(|place| calls.any(|call| gives(call, place)))
    }

    fn visit(&mut self, statement: &'t Stmt<'s>, within: Option<&'t Macro<'s>>) {
        match statement {
            Stmt::Template(node) => self.visit_all(&node.children, within),
            Stmt::EmitExpr(node) => self.read(&node.expr),
            Stmt::ForLoop(node) => {
                self.loops.push(Loop { node, within });
                self.read(&node.iter);
                self.read_all(&node.filter_expr);
                self.visit_all(&node.body, within);
                self.visit_all(&node.else_body, within);
            }
            Stmt::IfCond(node) => {
                self.read(&node.expr);
                self.visit_all(&node.true_body, within);
                self.visit_all(&node.false_body, within);
            }
            Stmt::Set(node) => {
                self.sets.push(node);
                self.read(&node.expr);
            }
            Stmt::SetBlock(node) => self.visit_all(&node.body, within),
            Stmt::WithBlock(node) => {
                self.read_all(node.assignments.iter().map(|(_, value)| value));
                self.visit_all(&node.body, within);
            }
            Stmt::AutoEscape(node) => self.visit_all(&node.body, within),
            Stmt::FilterBlock(node) => self.visit_all(&node.body, within),
            Stmt::Block(node) => self.visit_all(&node.body, within),
            Stmt::Macro(node) => {
                let within: &'t Macro<'s> = node;
                self.visit_all(&within.body, Some(within));
            }
            Stmt::CallBlock(node) => {
                self.call(&node.call);
                self.visit_all(&node.macro_decl.body, within);
            }
            Stmt::Do(node) => self.call(&node.call),
            _ => {}
        }
    }

    fn visit_all(&mut self, statements: &'t [Stmt<'s>], within: Option<&'t Macro<'s>>) {
        for statement in statements {
            self.visit(statement, within);
        }
    }

    /// Collects the calls in an expression.
    fn read(&mut self, expr: &'t Expr<'s>) {
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(node) => {
                self.read(&node.expr);
                self.read_all([&node.start, &node.stop, &node.step].into_iter().flatten());
            }
            Expr::UnaryOp(node) => self.read(&node.expr),
            Expr::BinOp(node) => self.read_all([&node.left, &node.right]),
            Expr::Compare(node) => {
                self.read(&node.expr);
                self.read_all(node.ops.iter().map(|op| &op.expr));
            }
            Expr::IfExpr(node) => {
                self.read_all([&node.test_expr, &node.true_expr]);
                self.read_all(&node.false_expr);
            }
            Expr::Filter(node) => {
                self.read_all(&node.expr);
                self.read_args(&node.args);
            }
            Expr::Test(node) => {
                self.read(&node.expr);
                self.read_args(&node.args);
            }
            Expr::GetAttr(node) => self.read(&node.expr),
            Expr::GetItem(node) => self.read_all([&node.expr, &node.subscript_expr]),
            Expr::Call(node) => self.call(node),
            Expr::List(node) => self.read_all(&node.items),
            Expr::Tuple(node) => self.read_all(&node.items),
            Expr::Map(node) => self.read_all(node.keys.iter().chain(&node.values)),
        }
    }

    fn read_all(&mut self, exprs: impl IntoIterator<Item = &'t Expr<'s>>)
    where
        's: 't,
    {
        for expr in exprs {
            self.read(expr);
        }
    }

    fn call(&mut self, call: &'t Call<'s>) {
        self.calls.push(call);
        self.read(&call.expr);
        self.read_args(&call.args);
    }

    fn read_args(&mut self, args: &'t [CallArg<'s>]) {
        for arg in args {
            match arg {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.read(value),
            }
        }
    }
}

/// Returns the names that `set` gives to lists: `all` in `{% set all = messages %}`, and `ns.rest`
/// in `{% set ns.rest = messages %}` and `{% set ns = namespace(rest=messages) %}`.
fn aliases(set: &Set<'_>, lists: &BTreeSet<String>) -> Vec<String> {
    let is_list = |expr: &Expr<'_>| list_name(expr).is_some_and(|name| lists.contains(&name));
    match (&set.expr, variable(&set.target)) {
        (expr, _) if is_list(expr) => dotted_name(&set.target).into_iter().collect(),
        (Expr::Call(call), Some(target)) if variable(&call.expr) == Some("namespace") => {
            let attributes = call.args.iter().filter_map(|arg| match arg {
                CallArg::Kwarg(key, value) if is_list(value) => Some(format!("{target}.{key}")),
                _ => None,
            });
            attributes.collect()
        }
        _ => Vec::new(),
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

fn list_name(expr: &Expr<'_>) -> Option<String> {
    dotted_name(underlying(expr))
}

/// Returns `ns.rest` for the attribute of that name, and the name of a variable.
fn dotted_name(expr: &Expr<'_>) -> Option<String> {
    match expr {
        Expr::Var(node) => Some(node.id.to_owned()),
        Expr::GetAttr(node) => Some(format!("{}.{}", dotted_name(&node.expr)?, node.name)),
        _ => None,
    }
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
        Expr::GetAttr(node) if node.name == CONTENT => variable(&node.expr),
        Expr::GetItem(node) => match &node.subscript_expr {
            Expr::Const(key) if key.value.as_str() == Some(CONTENT) => variable(&node.expr),
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
        let show =
            "{% macro show(role, content) %}{% for c in content %}{% endfor %}{% endmacro %}";
        let shown = |call: &str| format!("{show}{{% for m in messages %}}{call}{{% endfor %}}");
        let loops = "{% for m in ns.rest %}{% for c in m.content %}{% endfor %}{% endfor %}";
        let parts = [
            "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}".to_owned(),
            "{% for m in messages[1:] %}{% for c in m['content'] | list %}{% endfor %}{% endfor %}"
                .to_owned(),
            "{% set rest = messages[1:] %}{% set all = rest %}{% for m in all %}\
             {% if m.content is not string %}{% for c in m['content'] %}{{ c.text }}\
             {% endfor %}{% endif %}{% endfor %}"
                .to_owned(),
            "{% for m in messages %}{% set content = m.content %}{% for c in content %}\
             {% endfor %}{% endfor %}"
                .to_owned(),
            shown("{{ show(m.role, m.content) }}"),
            shown("{% set text = 'a' ~ show(content=m['content'], role='b') | trim %}"),
            shown("{% if m.role == 'user' and show('user', m.content | list) %}{% endif %}"),
            format!("{{% set ns = namespace(first=0, rest=messages[1:]) %}}{loops}"),
            format!("{{% set ns = namespace(rest=[]) %}}{{% set ns.rest = messages %}}{loops}"),
        ];
        for template in &parts {
            assert_eq!(ContentFormat::of(template), ContentFormat::OpenAi, "{template}");
        }
        let text = [
            "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned(),
            "{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}".to_owned(),
            "{% for m in others %}{% for c in m.content %}{% endfor %}{% endfor %}".to_owned(),
            "{% for m in messages %}{% for c in content | list %}{% endfor %}{% endfor %}"
                .to_owned(),
            shown("{{ show(m.content, m.role) }}"),
            shown("{{ other(m.role, m.content) }}"),
            format!("{{% set ns = namespace(first=messages) %}}{loops}"),
            "{% for m in messages %}{% for c in m.content".to_owned(),
        ];
        for template in &text {
            assert_eq!(ContentFormat::of(template), ContentFormat::String, "{template}");
        }
    }
}
