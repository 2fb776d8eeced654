//! Conversion from codes to the numbers that they stand for: a block of inputs of a panel, as a
//! dense weight would hold it.
//!
//! A number is `scale · (code - zero - zero_point) + offset`. The difference is an integer and
//! exact, and the rest is one fused multiply-add. The result is thus the f32 nearest to the
//! format's definition.

use std::ops::Range;

use super::e2m1;
use super::isa::CodeVector;
use super::pack::{CodeFormat, Groups, OffsetKind, PackedQuantized};
use crate::linear::micro::{Form, Paired, Single, VECTORS};
use crate::linear::pack::PANEL;
use crate::simd::{FIELD_BASE, LANES, Simd, prefetch_l2};
use crate::workspace::Scratch;

/// Inputs that are decoded together: two words.
pub(super) const CHUNK: usize = 8;

/// Neighbouring inputs that are summed from zero: whole groups, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// Inputs of the row.
    pub(super) inputs: Range<usize>,
    pub(super) groups: Range<usize>,
    /// Inputs of the first group that come before the span.
    skipped: usize,
}

impl Span {
    /// Returns the number of inputs that the span has of its `i`-th group.
    #[inline(always)]
    pub(super) fn inputs_of(&self, i: usize, groups: Groups) -> usize {
        groups.size.min(self.inputs.len() - i * groups.size)
    }
}

/// Cuts a row into spans of at most `inputs_max` inputs, a multiple of [`CHUNK`].
pub(super) fn spans(groups: Groups, inputs_max: usize) -> impl Iterator<Item = Span> {
    let Groups { inputs, size } = groups;
    let at_once = (inputs_max / size).max(1);
    (0..groups.count()).step_by(at_once).flat_map(move |first| {
        let groups = first..groups.count().min(first + at_once);
        let start = first * size;
        let end = inputs.min(groups.end * size);
        // A span of more than one group never exceeds `inputs_max`.
        (start..end).step_by(inputs_max).map(move |first| Span {
            inputs: first..end.min(first + inputs_max),
            groups: groups.clone(),
            skipped: first - start,
        })
    })
}

/// A form whose lines can be written.
pub(super) trait Decoded<S: Simd>: Form<S> {
    /// Writes eight neighbouring inputs of a vector to the lines of a panel, `[line][vector]`.
    /// Stops at the last line.
    fn place(s: S, values: [S::V; CHUNK], lines: &mut [[Self::Line; VECTORS]], vector: usize);
}

impl<S: Simd> Decoded<S> for Single {
    #[inline(always)]
    fn place(s: S, values: [S::V; CHUNK], lines: &mut [[Self::Line; VECTORS]], vector: usize) {
        for (line, value) in lines.iter_mut().zip(values) {
            s.store(&mut line[vector], value);
        }
    }
}

impl<S: Simd> Decoded<S> for Paired {
    #[inline(always)]
    fn place(s: S, values: [S::V; CHUNK], lines: &mut [[Self::Line; VECTORS]], vector: usize) {
        for (line, [even, odd]) in lines.iter_mut().zip(values.as_chunks().0) {
            s.narrow_pairs(&mut line[vector], *even, *odd);
        }
    }
}

/// The decoder of one weight.
pub(super) struct Decoder<'a> {
    pub(super) weight: &'a PackedQuantized,
    /// Bytes between the codes of a chunk and those that are prefetched meanwhile.
    ahead: usize,
    /// The factors of a span's groups in f32, one panel after the other.
    factors: Scratch<f32>,
}

impl<'a> Decoder<'a> {
    /// Makes a decoder for spans of at most `inputs_max` inputs, of one panel or two.
    pub(super) fn new(weight: &'a PackedQuantized, inputs_max: usize, ahead: usize) -> Self {
        let groups = (inputs_max / weight.header.groups.size).max(1);
        Self { weight, ahead, factors: Scratch::new(2 * groups * weight.header.group_factors()) }
    }

    /// Widens the factors for a span of `count` panels.
    #[inline(always)]
    pub(super) fn widen(&mut self, panel: usize, count: usize, span: &Span) {
        let header = &self.weight.header;
        let len = span.groups.len() * header.group_factors();
        for (p, factors) in self.factors.chunks_exact_mut(len).take(count).enumerate() {
            let first = (panel + p) * header.panel_factors();
            let first = first + span.groups.start * header.group_factors();
            self.weight.factors.widen_into(first, factors);
        }
    }

    /// Returns where in a panel the codes begin that the span has of a group.
    #[inline(always)]
    pub(super) fn offset(&self, span: &Span, group: usize) -> usize {
        let header = &self.weight.header;
        let pair_bytes = header.format.pair_bytes();
        (group * header.groups.words() / 2 + span.skipped / CHUNK) * pair_bytes
    }

    /// Writes a span of a panel to as many lines as it takes. Inputs of those lines beyond the span
    /// hold finite numbers.
    #[inline(always)]
    pub(super) fn decode<S: Simd, F: Decoded<S>>(
        &mut self,
        s: S,
        panel: usize,
        span: &Span,
        lines: &mut [F::Line],
    ) {
        self.widen(panel, 1, span);
        let header = &self.weight.header;
        let pair_bytes = header.format.pair_bytes();
        let codes = &self.weight.codes[panel * header.panel_bytes()..][..header.panel_bytes()];
        let mut lines = lines.as_chunks_mut::<VECTORS>().0;
        for (i, group) in span.groups.clone().enumerate() {
            let inputs = span.inputs_of(i, header.groups);
            let (here, rest) = lines.split_at_mut(inputs.div_ceil(F::INPUTS));
            lines = rest;
            let codes = &codes[self.offset(span, group)..];
            let chunks = codes.chunks_exact(pair_bytes).zip(here.chunks_mut(CHUNK / F::INPUTS));
            let factors = self.group(s, panel, group, i);
            for (codes, lines) in chunks {
                for line in (0..pair_bytes).step_by(64) {
                    prefetch_l2(codes.as_ptr().wrapping_add(self.ahead + line));
                }
                for (v, factors) in factors.iter().enumerate() {
                    let values = factors.of(s, header.format, codes, v);
                    F::place(s, values, lines, v);
                }
            }
        }
    }

    /// Returns the factors of group `group` of a panel, the `i`-th of the widened ones.
    #[inline(always)]
    pub(super) fn group<S: Simd>(
        &self,
        s: S,
        panel: usize,
        group: usize,
        i: usize,
    ) -> [VectorFactors<S>; VECTORS] {
        let header = &self.weight.header;
        let factors = &self.factors[i * header.group_factors()..];
        let base = s.splat(-FIELD_BASE - f32::from(header.zero));
        let mut all = [VectorFactors { lower: base, ..VectorFactors::nothing(s) }; VECTORS];
        for (v, all) in all.iter_mut().enumerate() {
            all.scale = s.load(&factors[v * LANES..].as_chunks().0[0]);
            match header.offsets {
                OffsetKind::None => {}
                OffsetKind::ZeroPoints => {
                    let first = panel * header.panel_zero_points() + group * PANEL + v * LANES;
                    let zero_points = &self.weight.zero_points[first..].as_chunks().0[0];
                    let minus = s.splat(-1.0);
                    all.lower = s.fma(s.widen_int8(zero_points), minus, base);
                }
                OffsetKind::Values => {
                    all.offset = s.load(&factors[PANEL + v * LANES..].as_chunks().0[0]);
                }
            }
        }
        all
    }
}

/// Factors of sixteen outputs.
#[derive(Clone, Copy)]
pub(super) struct VectorFactors<S: Simd> {
    scale: S::V,
    /// The negative sum of [`FIELD_BASE`] and everything by which a code is lowered.
    lower: S::V,
    offset: S::V,
}

impl<S: Simd> VectorFactors<S> {
    /// Returns the factors that turn every code into zero.
    #[inline(always)]
    pub(super) fn nothing(s: S) -> Self {
        Self { scale: s.splat(0.0), lower: s.splat(0.0), offset: s.splat(0.0) }
    }

    /// Returns eight neighbouring inputs of a vector of a panel.
    #[inline(always)]
    pub(super) fn of(
        &self,
        s: S,
        format: CodeFormat,
        codes: &[u8],
        vector: usize,
    ) -> [S::V; CHUNK] {
        match format {
            CodeFormat::U4 => self.of_u4(s, codes, vector),
            CodeFormat::U8 => {
                let words = codes.as_chunks().0;
                self.of_words(s, &words[vector], &words[VECTORS + vector])
            }
            CodeFormat::E2M1 => {
                let [low, high] = e2m1::integers(&codes.as_chunks().0[vector]);
                self.of_words(s, &low, &high)
            }
        }
    }

    /// Returns the same from codes of four bits.
    #[inline(always)]
    fn of_u4(&self, s: S, codes: &[u8], vector: usize) -> [S::V; CHUNK] {
        const MASK: u32 = 0x0F;
        let words = &codes.as_chunks().0[vector];
        [
            self.value(s, s.field::<0>(words, MASK)),
            self.value(s, s.field::<8>(words, MASK)),
            self.value(s, s.field::<16>(words, MASK)),
            self.value(s, s.field::<24>(words, MASK)),
            self.value(s, s.field::<4>(words, MASK)),
            self.value(s, s.field::<12>(words, MASK)),
            self.value(s, s.field::<20>(words, MASK)),
            self.value(s, s.field::<28>(words, MASK)),
        ]
    }

    /// Returns the same from the codes of eight bits of two words.
    #[inline(always)]
    fn of_words(&self, s: S, low: &CodeVector, high: &CodeVector) -> [S::V; CHUNK] {
        const MASK: u32 = 0xFF;
        [
            self.value(s, s.field::<0>(low, MASK)),
            self.value(s, s.field::<8>(low, MASK)),
            self.value(s, s.field::<16>(low, MASK)),
            self.value(s, s.field::<24>(low, MASK)),
            self.value(s, s.field::<0>(high, MASK)),
            self.value(s, s.field::<8>(high, MASK)),
            self.value(s, s.field::<16>(high, MASK)),
            self.value(s, s.field::<24>(high, MASK)),
        ]
    }

    #[inline(always)]
    fn value(&self, s: S, field: S::V) -> S::V {
        s.fma(self.scale, s.add(field, self.lower), self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_groups_or_parts_of_one() {
        let cut = |inputs, size, max| -> Vec<(Range<usize>, Range<usize>, usize)> {
            let groups = Groups::new(inputs, size).unwrap();
            spans(groups, max).map(|span| (span.inputs, span.groups, span.skipped)).collect()
        };
        assert_eq!(
            cut(320, 32, 128),
            [(0..128, 0..4, 0), (128..256, 4..8, 0), (256..320, 8..10, 0)]
        );
        assert_eq!(cut(200, 10, 128), [(0..120, 0..12, 0), (120..200, 12..20, 0)]);
        assert_eq!(cut(77, 77, 128), [(0..77, 0..1, 0)]);
        assert_eq!(
            cut(400, 200, 128),
            [(0..128, 0..1, 0), (128..200, 0..1, 128), (200..328, 1..2, 0), (328..400, 1..2, 128)]
        );
        assert_eq!(
            cut(266, 64, 128),
            [(0..128, 0..2, 0), (128..256, 2..4, 0), (256..266, 4..5, 0)]
        );
    }
}
