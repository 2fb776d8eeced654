//! The content of the simulator's KV memory, as steps read and write it.
//!
//! Of a layer with a state, the first slot of a block has the state after the last of the block's
//! tokens that are computed. Guesses do not count. Each step writes over it.

use std::ops::Range;

use super::{Executor, Span, garbage::Reports};
use crate::{logic::kv_cache::KvKind, sim::memory::Memory};

/// Returns the positions of `span` whose content stays in a group's blocks: of a state, the last
/// one in each block that is no guess.
fn kept(kind: KvKind, span: Span, block_size: usize) -> impl Iterator<Item = usize> {
    let end = if kind.keeps_tokens_apart() { span.end } else { span.certain_end() };
    let is_last =
        move |position: usize| position + 1 == end || (position + 1).is_multiple_of(block_size);
    (span.start..end).filter(move |&position| kind.keeps_tokens_apart() || is_last(position))
}

/// Returns the position whose slot has the content of `position`.
fn place(kind: KvKind, position: usize, block_size: usize) -> usize {
    match kind.keeps_tokens_apart() {
        true => position,
        false => position - position % block_size,
    }
}

/// Returns the positions before `span` that a group's layers read for its first token.
fn read_before(kind: KvKind, span: Span) -> Range<usize> {
    kind.num_unread(span.start).min(span.start)..span.start
}

/// Returns the blocks that the positions lie in.
fn blocks(positions: Range<usize>, block_size: usize) -> Range<usize> {
    positions.start / block_size..positions.end.div_ceil(block_size)
}

impl Executor {
    /// Returns the indices of `spans` in an order in which each span finds the content that others
    /// of the same step write for it.
    pub(super) fn in_order(&self, spans: &[Span], block_size: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..spans.len()).collect();
        let mut order = Vec::with_capacity(spans.len());
        while !left.is_empty() {
            let waits = |index: usize| {
                left.iter()
                    .any(|&other| other != index && self.feeds(spans, other, index, block_size))
            };
            let ready: Vec<usize> = left.iter().copied().filter(|&index| !waits(index)).collect();
            if ready.is_empty() {
                self.violate(|| "the requests of a step wait for each other".to_owned());
                order.append(&mut left);
            }
            left.retain(|index| !ready.contains(index));
            order.extend(ready);
        }
        order
    }

    /// Returns whether the span `from` writes content that the span `to` begins with.
    fn feeds(&self, spans: &[Span], from: usize, to: usize, block_size: usize) -> bool {
        let (from, to) = (spans[from], spans[to]);
        let tables = self.rows[&from.request].tables.iter().zip(&self.rows[&to.request].tables);
        tables.enumerate().any(|(group, (written, read))| {
            let written = written.get(blocks(from.start..from.end, block_size));
            let read = read.get(blocks(read_before(self.kind(group), to), block_size));
            let written = written.unwrap_or_default();
            read.unwrap_or_default().iter().any(|block| written.contains(block))
        })
    }

    /// Reads the content that a span begins with, before a state is written over. Returns whether
    /// some of it is garbage. The span's own content then is garbage, too.
    pub(super) fn begins_with_garbage(
        &self,
        span: Span,
        memory: &mut Memory,
        reports: &Reports,
    ) -> bool {
        let mut is_garbage = false;
        for group in 0..self.device.engine.info.kv_spec.groups.len() {
            for position in read_before(self.kind(group), span) {
                is_garbage |= self.reads(span, group, position, memory, reports);
            }
        }
        is_garbage
    }

    pub(super) fn write(&self, span: Span, memory: &mut Memory, is_garbage: bool) {
        let row = &self.rows[&span.request];
        let block_size = memory.block_size();
        let garbage_of = is_garbage.then_some(row.life);
        for (group, table) in row.tables.iter().enumerate() {
            let kind = self.kind(group);
            for position in kept(kind, span, block_size) {
                let place = place(kind, position, block_size);
                if !memory.write(table, place, row.content(group, position), garbage_of) {
                    self.violate(|| format!("{span:?} writes where {table:?} has no block"));
                }
            }
        }
    }

    fn kind(&self, group: usize) -> KvKind {
        self.device.engine.info.kv_spec.groups[group].kind
    }

    /// Writes as a crash within a step does: some slots are written, others torn.
    pub(super) fn tear(&self, spans: &[Span], memory: &mut Memory) {
        for span in spans {
            let row = &self.rows[&span.request];
            let block_size = memory.block_size();
            for (group, table) in row.tables.iter().enumerate() {
                let kind = self.kind(group);
                for position in kept(kind, *span, block_size) {
                    let content = row.content(group, position);
                    let is_written = content & 2 == 0;
                    let place = place(kind, position, block_size);
                    memory.write(table, place, if is_written { content } else { 0 }, None);
                }
            }
        }
    }

    /// Reads all KV that attention reads for a span. Returns whether any of it is garbage.
    pub(super) fn reads_garbage(&self, span: Span, memory: &mut Memory, reports: &Reports) -> bool {
        let mut is_nan = false;
        for (group, of_group) in self.device.engine.info.kv_spec.groups.iter().enumerate() {
            // The state before the span was read before it was written over.
            let positions = match of_group.kind.keeps_tokens_apart() {
                true => of_group.kind.num_unread(span.start)..span.end,
                false => span.certain_end() - 1..span.certain_end(),
            };
            for position in positions {
                is_nan |= self.reads(span, group, position, memory, reports);
            }
        }
        is_nan
    }

    /// Reads what a group's layers have for `position`. Returns whether it is garbage.
    fn reads(
        &self,
        span: Span,
        group: usize,
        position: usize,
        memory: &mut Memory,
        reports: &Reports,
    ) -> bool {
        let row = &self.rows[&span.request];
        let (kind, table, block_size) = (self.kind(group), &row.tables[group], memory.block_size());
        let place = place(kind, position, block_size);
        let violate = |what: &str| {
            let (request, block) = (span.request, table.get(position / block_size));
            self.violate(|| {
                format!("request {request} reads {what} KV at {position}, in {block:?} of {kind:?}")
            });
        };
        match memory.read(table, place, row.content(group, position)) {
            Ok(None) => false,
            Ok(Some(life)) => {
                if !reports.may_read(life, row.began) {
                    violate("Garbage");
                }
                true
            }
            Err(wrong) => {
                violate(&format!("{wrong:?}"));
                false
            }
        }
    }
}
