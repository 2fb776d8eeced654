//! Spans: fixed stretches of key positions, each a whole number of blocks.

use std::ops::Range;

use crate::kv_cache::KvLayout;
use crate::kv_cache::cpu::Arenas;
use crate::simd::{Element, LANES};

/// Keys summed from zero before they join the running softmax, in blocks up to this size.
const SPAN_TOKENS: usize = 256;

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

    /// Whether a lane holds a key that a row sees.
    pub(super) fn sees(&self, visible: Visible, lane: usize) -> bool {
        let (block, offset) = (lane / self.layout.lanes, lane % self.layout.lanes);
        let position = self.start + block * self.layout.block_size + offset;
        offset < self.layout.block_size && (visible.first..=visible.last).contains(&position)
    }

    /// Whether a row sees anything of the span.
    pub(super) fn overlaps(&self, visible: Visible) -> bool {
        visible.first < self.seen.end && visible.last >= self.seen.start
    }

    /// Whether a row sees every lane of [`Self::vectors`].
    pub(super) fn covered(&self, visible: Visible) -> bool {
        let vectors = self.vectors();
        self.layout.lanes == self.layout.block_size
            && visible.first <= self.start + vectors.start * LANES
            && visible.last + 1 >= self.start + vectors.end * LANES
    }

    /// The keys and values of one head in this span.
    pub(super) fn head<E: Element>(
        &'a self,
        arenas: &'a Arenas<E>,
        kv_head: usize,
    ) -> SpanHead<'a, E> {
        SpanHead { span: self, arenas, kv_head }
    }
}

/// One head's keys and values in a span.
pub(super) struct SpanHead<'a, E: Element> {
    pub(super) span: &'a Span<'a>,
    arenas: &'a Arenas<E>,
    kv_head: usize,
}

impl<'a, E: Element> SpanHead<'a, E> {
    /// The keys of vector `v`: element `i * stride` is step `i`.
    #[inline(always)]
    pub(super) fn keys(&self, v: usize) -> (&'a [E::Group], usize) {
        let stride = self.span.layout.lanes / LANES;
        let block = self.span.blocks[v / stride] as usize;
        let keys = self.arenas.keys(self.span.layout, block, self.kv_head);
        (&E::groups(keys)[v % stride..], stride)
    }

    /// For each block that some row sees: the lane of its first value, and its values, row-major
    /// `[tokens, value_dim]`.
    #[inline(always)]
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, &'a [E])> {
        let Span { layout, blocks, start, seen } = self.span;
        let (size, dim) = (layout.block_size, layout.value_dim);
        let (from, to) = (seen.start - start, seen.end - start);
        (from / size..to.div_ceil(size)).map(move |b| {
            let rows = from.max(b * size) - b * size..to.min((b + 1) * size) - b * size;
            let values = self.arenas.values(layout, blocks[b] as usize, self.kv_head);
            (b * layout.lanes + rows.start, &values[rows.start * dim..rows.end * dim])
        })
    }
}
