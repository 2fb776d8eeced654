//! Spans: fixed stretches of key positions, each a whole number of blocks.

use std::ops::Range;

use super::{AttentionMask, AttentionMetadata};
use crate::kv_cache::cpu::Arenas;
use crate::kv_cache::{KvElement, KvLayout};
use crate::simd::LANES;

/// Most keys that are summed from zero before they join the running softmax, unless a block has
/// more.
pub(super) const SPAN_TOKENS: usize = 256;

/// The positions that a query sees: `first ..= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visible {
    pub(super) first: usize,
    pub(super) last: usize,
    /// The query's own position.
    pub(super) position: usize,
}

impl Visible {
    /// Returns the keys that token `t` of sequence `seq` sees.
    pub(super) fn new(meta: &AttentionMetadata, seq: usize, t: usize, mask: AttentionMask) -> Self {
        let position = meta.positions[t] as usize;
        let last = meta.last_visible(seq, t, mask);
        Self { first: mask.first_visible(position), last, position }
    }
}

/// Returns the spans that hold these positions.
pub(super) fn spans_of(layout: &KvLayout, seen: &Range<usize>) -> Range<usize> {
    let tokens = blocks_of_a_span(layout) * layout.block_size;
    seen.start / tokens..seen.end.div_ceil(tokens)
}

fn blocks_of_a_span(layout: &KvLayout) -> usize {
    (SPAN_TOKENS / layout.block_size).max(1)
}

/// One span, as far as any row of a tile sees it.
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

impl<'a> Span<'a> {
    /// Returns span `index` of a sequence in these blocks, some of whose rows see the positions
    /// `seen`.
    pub(super) fn new(
        layout: &'a KvLayout,
        blocks: &'a [u32],
        index: usize,
        seen: &Range<usize>,
    ) -> Self {
        let count = blocks_of_a_span(layout);
        let start = index * count * layout.block_size;
        let end = start + count * layout.block_size;
        let seen = seen.start.max(start)..seen.end.min(end);
        Self { layout, blocks: &blocks[index * count..], start, seen }
    }

    /// Returns the lanes of a span: its scores, and the padding of its blocks.
    pub(super) fn lanes(layout: &KvLayout) -> usize {
        blocks_of_a_span(layout) * layout.lanes
    }

    /// Returns the lane of a position within the span.
    fn lane(&self, position: usize) -> usize {
        let at = position - self.start;
        at / self.layout.block_size * self.layout.lanes + at % self.layout.block_size
    }

    /// Returns the vectors of lanes that any row sees.
    pub(super) fn vectors(&self) -> Range<usize> {
        self.lane(self.seen.start) / LANES..self.lane(self.seen.end - 1) / LANES + 1
    }

    /// Returns the positions of the span that a row sees.
    fn seen_by(&self, visible: Visible) -> Range<usize> {
        self.seen.start.max(visible.first)..self.seen.end.min(visible.last + 1)
    }

    /// Returns whether a row sees any position of the span.
    pub(super) fn overlaps(&self, visible: Visible) -> bool {
        !self.seen_by(visible).is_empty()
    }

    /// Returns the position in the first lane of vector `v`.
    #[inline(always)]
    pub(super) fn position_of(&self, v: usize) -> usize {
        let stride = self.layout.lanes / LANES;
        self.start + v / stride * self.layout.block_size + v % stride * LANES
    }

    /// Returns the lanes of vector `v` that hold positions within `wanted`.
    #[inline(always)]
    fn lanes_within(&self, v: usize, wanted: Range<usize>) -> Range<usize> {
        let stride = self.layout.lanes / LANES;
        let offset = v % stride * LANES;
        let first = self.start + v / stride * self.layout.block_size + offset;
        let count = self.layout.block_size.saturating_sub(offset).min(LANES);
        // `clamp` would be a call, which spills the sums of the loop around it.
        let end = wanted.end.max(first).min(first + count) - first;
        wanted.start.max(first).min(first + end) - first..end
    }

    /// Returns the lanes of vector `v` that hold keys that a row sees.
    #[inline(always)]
    pub(super) fn lanes_seen(&self, v: usize, visible: Visible) -> Range<usize> {
        self.lanes_within(v, visible.first..visible.last + 1)
    }

    /// Returns the lanes of vector `v` that hold keys that any row sees.
    #[inline(always)]
    pub(super) fn lanes_in_use(&self, v: usize) -> Range<usize> {
        self.lanes_within(v, self.seen.clone())
    }

    /// Returns the keys and values of one head in this span.
    pub(super) fn head<E: KvElement>(
        &'a self,
        arenas: &'a Arenas<E>,
        kv_head: usize,
    ) -> SpanHead<'a, E> {
        SpanHead { span: self, arenas, kv_head }
    }
}

/// One head's keys and values in a span.
pub(super) struct SpanHead<'a, E: KvElement> {
    pub(super) span: &'a Span<'a>,
    pub(super) arenas: &'a Arenas<E>,
    pub(super) kv_head: usize,
}

/// Sixteen keys. Element `i * stride` of `groups` belongs to step `i` of a product.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a, E: KvElement> {
    pub(super) groups: &'a [E::Group],
    /// Scales of the keys, if the format has any.
    pub(super) scales: &'a [[f32; LANES]],
}

impl<'a, E: KvElement> SpanHead<'a, E> {
    /// Returns the vectors of keys in a block.
    pub(super) fn stride(&self) -> usize {
        self.span.layout.lanes / LANES
    }

    /// Returns vector `v` of the span's keys.
    #[inline(always)]
    pub(super) fn keys(&self, v: usize) -> Keys<'a, E> {
        let (block, at) = (self.span.blocks[v / self.stride()], v % self.stride());
        let keys = self.arenas.keys(self.span.layout, block as usize, self.kv_head);
        let scales = keys.scales.as_chunks().0;
        Keys { groups: &E::groups(keys.elements)[at..], scales: &scales[at.min(scales.len())..] }
    }

    /// Returns the values of vector `v`, row-major `[tokens, value_dim]`, and those of its lanes
    /// that any row sees.
    #[inline(always)]
    pub(super) fn values(&self, v: usize) -> (&'a [E], Range<usize>) {
        let (span, layout) = (self.span, self.span.layout);
        let (block, at) = (span.blocks[v / self.stride()], v % self.stride());
        let values = self.arenas.values(layout, block as usize, self.kv_head).elements;
        (&values[at * LANES * layout.value_dim..], span.lanes_within(v, span.seen.clone()))
    }

    /// Returns the address that is read `n` vectors after the one behind vector `v` of the keys.
    /// The values follow the keys.
    #[inline(always)]
    pub(super) fn after_keys(&self, v: usize, n: usize) -> *const u8 {
        let (Range { start, end }, wanted) = (self.span.vectors(), v + 1 + n);
        if wanted < end {
            return self.keys(wanted).groups.as_ptr().cast();
        }
        let again = (start + wanted - end).min(end - 1);
        match self.span.layout.values_in_keys {
            true => self.keys(again).groups.as_ptr().cast(),
            false => self.values(again).0.as_ptr().cast(),
        }
    }

    /// Returns the address that is read after vector `v` of the values. The keys of the next span,
    /// or of the next head, follow the values.
    #[inline(always)]
    pub(super) fn after_values(&self, v: usize) -> *const u8 {
        let Range { start, end } = self.span.vectors();
        if v + 1 < end {
            return self.values(v + 1).0.as_ptr().cast();
        }
        if end / self.stride() < self.span.blocks.len() {
            return self.keys(end).groups.as_ptr().cast();
        }
        let kv_head = (self.kv_head + 1).min(self.span.layout.num_kv_heads - 1);
        Self { kv_head, ..*self }.keys(start).groups.as_ptr().cast()
    }

    /// Returns the scales of the values in vector `v`, if the format has any.
    #[inline(always)]
    pub(super) fn value_scales(&self, v: usize) -> Option<&'a [f32; LANES]> {
        if self.span.layout.values_in_keys {
            return self.keys(v).scales.first();
        }
        let (block, at) = (self.span.blocks[v / self.stride()], v % self.stride());
        let values = self.arenas.values(self.span.layout, block as usize, self.kv_head);
        values.scales.as_chunks().0.get(at)
    }
}
