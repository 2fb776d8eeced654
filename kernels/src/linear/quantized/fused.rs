//! The product for one row or two. Numbers are multiplied in the registers where codes became
//! numbers, for two panels at a time. So sums wait neither for L1 nor for one another. The terms,
//! their order and therefore the bytes are those of products with more rows.

use super::dequantize::{CHUNK, Decoded, Decoder, Span, VectorFactors};
use crate::linear::micro::{Paired, Single, VECTORS};
use crate::linear::pack::PANEL;
use crate::simd::{LANES, Simd, prefetch_l2};

/// Most rows of a tile.
pub(super) const ROWS_MAX: usize = 2;

/// Vectors that a tile must be able to hold, so that sums, factors and numbers stay in registers.
pub(super) const TILE_VECTORS_MIN: usize = 16;

/// Bytes between the reads of a panel's codes and their prefetches.
const AHEAD: usize = 4096;

/// Sums of `R` rows across a panel.
type Sums<S, const R: usize> = [[<S as Simd>::V; VECTORS]; R];

/// A form whose numbers may stay in registers.
pub(super) trait Multiplied<S: Simd>: Decoded<S> {
    /// Adds the products of eight neighbouring inputs of a vector with activations, `[step][row]`.
    /// Stops at the last activation.
    fn add_chunk<const R: usize>(
        s: S,
        values: [S::V; CHUNK],
        x: &[[Self::X; R]],
        sums: &mut Sums<S, R>,
        vector: usize,
    );
}

impl<S: Simd> Multiplied<S> for Single {
    #[inline(always)]
    fn add_chunk<const R: usize>(
        s: S,
        values: [S::V; CHUNK],
        x: &[[f32; R]],
        sums: &mut Sums<S, R>,
        vector: usize,
    ) {
        for (value, x) in values.into_iter().zip(x) {
            for (sums, x) in sums.iter_mut().zip(x) {
                sums[vector] = s.fma(s.splat(*x), value, sums[vector]);
            }
        }
    }
}

impl<S: Simd> Multiplied<S> for Paired {
    #[inline(always)]
    fn add_chunk<const R: usize>(
        s: S,
        values: [S::V; CHUNK],
        x: &[[u32; R]],
        sums: &mut Sums<S, R>,
        vector: usize,
    ) {
        for ([even, odd], x) in values.as_chunks().0.iter().zip(x) {
            let mut line = [0; 2 * LANES];
            s.narrow_pairs(&mut line, *even, *odd);
            for (sums, x) in sums.iter_mut().zip(x) {
                sums[vector] = s.dot_bf16(sums[vector], *x, &line);
            }
        }
    }
}

/// `P` neighbouring panels for `R` rows.
pub(super) struct Few<'d, 'w, const R: usize, const P: usize> {
    pub(super) decoder: &'d mut Decoder<'w>,
    /// The first of the panels.
    pub(super) panel: usize,
    pub(super) totals: [[[f32; PANEL]; R]; P],
}

impl<const R: usize, const P: usize> Few<'_, '_, R, P> {
    /// Adds the products of a span with its activations, `[step][row]`.
    #[inline(always)]
    pub(super) fn add<S: Simd, F: Multiplied<S>>(&mut self, s: S, span: &Span, x: &[F::X]) {
        let weight = self.decoder.weight;
        let header = &weight.header;
        self.decoder.widen(self.panel, P, span);
        let (pair_bytes, panel_bytes) = (header.format.pair_bytes(), header.panel_bytes());
        let codes = &weight.codes[self.panel * panel_bytes..][..P * panel_bytes];
        let mut sums = [[[s.splat(0.0); VECTORS]; R]; P];
        let mut x = x.as_chunks::<R>().0;
        for (i, group) in span.groups.clone().enumerate() {
            let (here, rest) = x.split_at(span.inputs_of(i, header.groups).div_ceil(F::INPUTS));
            x = rest;
            let mut factors = [[VectorFactors::nothing(s); VECTORS]; P];
            for (p, factors) in factors.iter_mut().enumerate() {
                *factors = self.decoder.group(s, self.panel + p, group, p * span.groups.len() + i);
            }
            let first = self.decoder.offset(span, group);
            for (chunk, x) in here.chunks(CHUNK / F::INPUTS).enumerate() {
                let at = first + chunk * pair_bytes;
                // Behind the panels of this tile lie those of the next tile.
                let jump = if at + AHEAD < panel_bytes { 0 } else { (P - 1) * panel_bytes };
                for (p, (factors, sums)) in factors.iter().zip(&mut sums).enumerate() {
                    let codes = &codes[p * panel_bytes + at..][..pair_bytes];
                    for line in (0..pair_bytes).step_by(64) {
                        prefetch_l2(codes.as_ptr().wrapping_add(AHEAD + jump + line));
                    }
                    for (v, factors) in factors.iter().enumerate() {
                        let values = factors.of(s, header.format, codes, v);
                        // If the number of steps is a constant, the numbers stay in registers.
                        if x.len() == CHUNK / F::INPUTS {
                            F::add_chunk::<R>(s, values, &x[..CHUNK / F::INPUTS], sums, v);
                        } else {
                            F::add_chunk::<R>(s, values, x, sums, v);
                        }
                    }
                }
            }
        }
        for (totals, sums) in self.totals.iter_mut().flatten().zip(sums.iter().flatten()) {
            for (total, sum) in totals.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
                s.store(total, s.add(s.load(total), *sum));
            }
        }
    }
}
