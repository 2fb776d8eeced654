//! A profile in figures: for each operation what it took itself, without what is within it, so that
//! the figures of a step add up to the step.

use std::{collections::BTreeMap, time::Duration};

use playhouse_kernels::profile::Span;

use super::Profile;

/// The span around each step of the model.
const STEP: &str = "step";

/// What one operation took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRow {
    /// Its name.
    pub name: &'static str,
    /// How often it was done.
    pub calls: usize,
    /// From begin to end.
    pub total: Duration,
    /// Without the operations within it.
    pub own: Duration,
}

/// What one actor did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRow {
    /// Its role.
    pub role: &'static str,
    /// Which of those with the same role.
    pub index: usize,
    /// Messages that it handled.
    pub messages: usize,
    /// For how long it computed.
    pub busy: Duration,
    /// With what it waited for while it handled them.
    pub total: Duration,
    /// The longest that it computed over one message.
    pub busy_max: Duration,
}

/// A profile in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// For how long was recorded.
    pub wall: Duration,
    /// Steps of the model.
    pub steps: usize,
    /// What the steps took together: the sum of what all operations within them took themselves.
    pub step_time: Duration,
    /// The operations, the most expensive one first.
    pub ops: Vec<OpRow>,
    /// The actors, the busiest one first.
    pub actors: Vec<ActorRow>,
}

impl Profile {
    /// The profile in figures.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut ops: BTreeMap<&'static str, OpRow> = BTreeMap::new();
        for (span, own) in self.own_times() {
            let empty =
                || OpRow { name: span.name, calls: 0, total: Duration::ZERO, own: Duration::ZERO };
            let row = ops.entry(span.name).or_insert_with(empty);
            row.calls += 1;
            row.total += span.end - span.begin;
            row.own += own;
        }
        let step = ops.get(STEP);
        let (steps, step_time) =
            step.map_or_else(Default::default, |step| (step.calls, step.total));
        let mut ops: Vec<_> = ops.into_values().collect();
        ops.sort_by_key(|row| (std::cmp::Reverse(row.own), row.name));
        Summary { wall: self.wall, steps, step_time, ops, actors: self.actors() }
    }

    /// Every span, and what it took itself. What ran on another thread while a step waited for it
    /// lies within the step all the same.
    fn own_times(&self) -> Vec<(Span, Duration)> {
        let is_of_steps = |spans: &[Span]| spans.iter().any(|span| span.name == STEP);
        let (stepping, computing): (Vec<_>, Vec<_>) =
            self.threads.iter().map(|thread| &thread.spans).partition(|spans| is_of_steps(spans));
        let mut all = Vec::new();
        let mut steps: Vec<Tree> = stepping.into_iter().map(|spans| Tree::of(spans)).collect();
        for spans in computing {
            let tree = Tree::of(spans);
            for top in tree.nodes.iter().filter(|node| node.parent.is_none()) {
                let home = steps.iter_mut().find_map(|steps| steps.around(&top.span));
                if let Some(node) = home {
                    node.within += top.span.end - top.span.begin;
                }
            }
            all.extend(tree.own_times());
        }
        all.extend(steps.iter().flat_map(Tree::own_times));
        all
    }

    fn actors(&self) -> Vec<ActorRow> {
        let mut actors: BTreeMap<(&'static str, usize), ActorRow> = BTreeMap::new();
        for handled in &self.handled {
            let (role, index) = (handled.role, handled.index);
            let (busy, total, busy_max) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            let empty = ActorRow { role, index, messages: 0, busy, total, busy_max };
            let row = actors.entry((role, index)).or_insert(empty);
            row.messages += 1;
            row.busy += handled.busy;
            row.total += handled.end - handled.begin;
            row.busy_max = row.busy_max.max(handled.busy);
        }
        let mut actors: Vec<_> = actors.into_values().collect();
        actors.sort_by_key(|row| (std::cmp::Reverse(row.busy), row.role, row.index));
        actors
    }
}

/// The spans of one thread, each with the one that contains it.
struct Tree {
    /// In the order in which they began, those that contain others before them.
    nodes: Vec<Node>,
}

struct Node {
    span: Span,
    parent: Option<usize>,
    /// What others within it took.
    within: Duration,
}

impl Tree {
    fn of(spans: &[Span]) -> Self {
        let mut sorted = spans.to_vec();
        sorted.sort_by_key(|span| (span.begin, std::cmp::Reverse(span.end)));
        let mut nodes: Vec<Node> = Vec::with_capacity(sorted.len());
        let mut open: Option<usize> = None;
        for span in sorted {
            while let Some(index) = open.filter(|&index| nodes[index].span.end <= span.begin) {
                open = nodes[index].parent;
            }
            if let Some(index) = open {
                nodes[index].within += span.end - span.begin;
            }
            nodes.push(Node { span, parent: open, within: Duration::ZERO });
            open = Some(nodes.len() - 1);
        }
        Self { nodes }
    }

    /// The innermost span around this one of another thread.
    fn around(&mut self, span: &Span) -> Option<&mut Node> {
        let begun = self.nodes.partition_point(|node| node.span.begin <= span.begin);
        let mut index = begun.checked_sub(1)?;
        while self.nodes[index].span.end < span.end {
            index = self.nodes[index].parent?;
        }
        Some(&mut self.nodes[index])
    }

    fn own_times(&self) -> impl Iterator<Item = (Span, Duration)> + '_ {
        let own = |node: &Node| (node.span.end - node.span.begin).saturating_sub(node.within);
        self.nodes.iter().map(move |node| (node.span, own(node)))
    }
}
