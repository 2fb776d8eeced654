//! Spans: fixed stretches of key positions, each a whole number of blocks.

use std::ops::Range;

use crate::kv_cache::KvLayout;
use crate::kv_cache::cpu::Arenas;
use crate::simd::{Element, LANES};

/// Keys summed from zero before they join the running softmax, in blocks up to this size.
pub(super) const SPAN_TOKENS: usize = 256;

/// The positions that a query sees: `first ..= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visible {
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Visible {
    /// For a query at `position`: keys `j` with `position - window < j <= position`.
    pub(super) fn new(position: usize, window: Option<u32>) -> Self {
        let first = window.map_or(0, |w| (position + 1).saturating_sub(w as usize));
        Self { first, last: position }
    }
}

/// One span, as far as some row of a tile sees it.
#[derive(Debug, Clone)]
pub(super) struct Span<'a> {
    pub(super) layout: &'a KvLayout,
    /// The arena's blocks, from the span's beginning.
    blocks: &'a [u32],
    /// Position of the span's first key.
    start: usize,
    /// Positions that some row sees.
    seen: Range<usize>,
}

/// The spans that some row sees, in order.
pub(super) fn spans<'a>(
    layout: &'a KvLayout,
    blocks: &'a [u32],
    visible: &[Visible],
) -> impl Iterator<Item = Span<'a>> {
    let tokens = Span::blocks(layout) * layout.block_size;
    let first = visible.iter().map(|v| v.first).min().unwrap_or(0);
    let end = visible.iter().map(|v| v.last + 1).max().unwrap_or(0);
    (first / tokens..end.div_ceil(tokens)).map(move |i| {
        let start = i * tokens;
        let seen = first.max(start)..end.min(start + tokens);
        Span { layout, blocks: &blocks[i * Span::blocks(layout)..], start, seen }
    })
}

impl<'a> Span<'a> {
    /// Blocks of a span.
    fn blocks(layout: &KvLayout) -> usize {
        (SPAN_TOKENS / layout.block_size).max(1)
    }

    /// Lanes of a span: its scores, and the padding of its blocks.
    pub(super) fn lanes(layout: &KvLayout) -> usize {
        Self::blocks(layout) * layout.lanes
    }

    /// The lane of a position within the span.
    fn lane(&self, position: usize) -> usize {
        let at = position - self.start;
        at / self.layout.block_size * self.layout.lanes + at % self.layout.block_size
    }

    /// The vectors of lanes that some row sees.
    pub(super) fn vectors(&self) -> Range<usize> {
        self.lane(self.seen.start) / LANES..self.lane(self.seen.end - 1) / LANES + 1
    }

    /// The positions that a row sees of the span.
    fn seen_by(&self, visible: Visible) -> Range<usize> {
        self.seen.start.max(visible.first)..self.seen.end.min(visible.last + 1)
    }

    /// Whether a row sees anything of the span.
    pub(super) fn overlaps(&self, visible: Visible) -> bool {
        !self.seen_by(visible).is_empty()
    }

    /// Sets to −∞ the lanes of [`Self::vectors`] in `row` that hold no key that the row sees.
    pub(super) fn mask(&self, visible: Visible, row: &mut [f32]) {
        let (vectors, seen) = (self.vectors(), self.seen_by(visible));
        let (first, last) = (self.lane(seen.start), self.lane(seen.end - 1));
        row[vectors.start * LANES..first].fill(f32::NEG_INFINITY);
        row[last + 1..vectors.end * LANES].fill(f32::NEG_INFINITY);
        if self.layout.lanes > self.layout.block_size {
            for block in row[..=last].chunks_mut(self.layout.lanes) {
                let padding = self.layout.block_size.min(block.len());
                block[padding..].fill(f32::NEG_INFINITY);
            }
        }
    }

    /// The keys and values of one head in this span.
    pub(super) fn head<E: Element>(
        &'a self,
        arenas: &'a Arenas<E>,
        kv_head: usize,
    ) -> SpanHead<'a, E> {
        let layout = self.layout;
        let (size, dim) = (layout.block_size, layout.value_dim);
        let (from, to) = (self.seen.start - self.start, self.seen.end - self.start);
        let values = |b: usize| {
            let rows = from.max(b * size) - b * size..to.min((b + 1) * size) - b * size;
            let values = arenas.values(layout, self.blocks[b] as usize, kv_head);
            (b * layout.lanes + rows.start, &values[rows.start * dim..rows.end * dim])
        };
        let stride = layout.lanes / LANES;
        let vectors = self.vectors();
        let keys = |v: usize| {
            let block = self.blocks[v / stride] as usize;
            &E::groups(arenas.keys(layout, block, kv_head))[v % stride..]
        };
        SpanHead {
            span: self,
            keys: vectors.clone().map(keys).collect(),
            vectors,
            stride,
            values: (from / size..to.div_ceil(size)).map(values).collect(),
        }
    }
}

/// One head's keys and values in a span. Slices are found beforehand: a call within a register
/// tile would spill it.
pub(super) struct SpanHead<'a, E: Element> {
    pub(super) span: &'a Span<'a>,
    /// [`Span::vectors`]
    pub(super) vectors: Range<usize>,
    /// Keys of each such vector: element `i * stride` belongs to step `i`.
    pub(super) keys: Vec<&'a [E::Group]>,
    pub(super) stride: usize,
    /// For each block that some row sees: the lane of its first value, and its values, row-major
    /// `[tokens, value_dim]`.
    pub(super) values: Vec<(usize, &'a [E])>,
}
