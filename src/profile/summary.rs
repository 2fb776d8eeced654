//! A profile in figures: for each operation its own time, without the operations within it. So the
//! figures of a step add up to the step.

use std::{collections::BTreeMap, time::Duration};

use playhouse_kernels::profile::Span;

use super::Profile;

/// The span around each step of the model.
const STEP: &str = "step";

/// The time of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRow {
    /// Its name.
    pub name: &'static str,
    /// Number of calls.
    pub calls: usize,
    /// Time from begin to end.
    pub total: Duration,
    /// Time without the operations within it.
    pub own: Duration,
}

/// The work of one actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRow {
    /// Its role.
    pub role: &'static str,
    /// Its index among actors of the same role.
    pub index: usize,
    /// Messages that it handled.
    pub messages: usize,
    /// Time in which it computed.
    pub busy: Duration,
    /// The same, with the time in which its handlers waited.
    pub total: Duration,
    /// The longest time that it computed for one message.
    pub busy_max: Duration,
}

/// A profile in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Length of the recording.
    pub wall: Duration,
    /// Steps of the model.
    pub steps: usize,
    /// Time of all steps: the sum of the own times of all operations within them.
    pub step_time: Duration,
    /// The operations, the most expensive one first.
    pub ops: Vec<OpRow>,
    /// The actors, the busiest one first.
    pub actors: Vec<ActorRow>,
}

impl Profile {
    /// Returns the profile in figures.
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

    /// Returns each span with its own time. A span of another thread for which a step waited also
    /// counts as part of the step.
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

/// The spans of one thread, each with its parent.
struct Tree {
    /// In the order of their begins, and parents before their children.
    nodes: Vec<Node>,
}

struct Node {
    span: Span,
    parent: Option<usize>,
    /// Time of the spans within it.
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

    /// Returns the innermost span of this thread around `span`, a span of another thread.
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
