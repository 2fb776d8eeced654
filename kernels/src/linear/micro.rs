//! The inner loops: a register tile of sums, over one block of inputs.
//!
//! A tile is `R` rows by `V` vectors of a panel.

use super::pack::{K_BLOCK, PANEL};
use crate::simd::{LANES, Simd, bf16_bits, prefetch, prefetch_l2};

/// Vectors across a panel.
pub(super) const VECTORS: usize = PANEL / LANES;

/// Most rows of a tile, on any instruction set.
pub(super) const ROWS_MAX: usize = 12;

/// Bytes between a streaming tile's reads and its prefetches of weights.
const STREAM_AHEAD: usize = 4096;

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// The layout of the operands of a sum in memory, and the step that adds to the sum.
pub(super) trait Form<S: Simd>: Send + Sync {
    /// One stored element of the weights.
    type Element: bytemuck::Pod + Send + Sync;
    /// Inputs that are summed from zero before they are added to the result. Their weights in a
    /// panel fill half of L1, and their number bounds the rounding error of the running sum. Whole
    /// lines.
    const BLOCK: usize;
    /// 64 bytes of weights: [`LANES`] outputs, with `INPUTS` neighbouring inputs of each.
    type Line: bytemuck::Pod + Send + Sync;
    /// Inputs of a line.
    const INPUTS: usize;
    /// One or more activations, as one step broadcasts them.
    type X: bytemuck::Pod + Send + Sync;
    /// Number of [`Self::X`] that meet a line.
    const XS: usize;
    /// Inputs of one [`Self::X`].
    const X_INPUTS: usize = Self::INPUTS / Self::XS;
    /// A line in registers.
    type W<'a>: Copy;

    /// Cuts elements into lines.
    fn lines(elements: &[Self::Element]) -> &[Self::Line];
    /// Writes a stretch of a row as its steps broadcast it, then zeros beyond the row.
    fn lay_out(row: &[f32], xs: &mut [Self::X]);
    /// Loads a line.
    fn load(s: S, line: &Self::Line) -> Self::W<'_>;
    /// Whether [`Single`] may run on lines from [`Self::widen`], with the same `X`.
    const WIDENS: bool = false;
    /// Widens lines, `[input / INPUTS][vector]`, to those of [`Single`]. Only where
    /// [`Self::WIDENS`].
    fn widen(s: S, lines: &[Self::Line], wide: &mut [[f32; LANES]]) {
        let _ = (s, lines, wide);
        unreachable!("these weights are multiplied as they are")
    }
    /// Returns `acc + Σ x[i][r] · w[i]`, lane by lane, in order of the inputs.
    fn add<const R: usize>(s: S, acc: S::V, x: &[[Self::X; R]], r: usize, w: Self::W<'_>) -> S::V;
}

/// f32 weights.
pub(super) struct Single;

/// bf16 weights that become f32 in registers. The sums are exactly those of [`Single`] on weights
/// that were widened before.
pub(super) struct Widened;

/// bf16 weights and activations rounded to bf16, multiplied by the instruction set's dot product.
pub(super) struct Paired;

impl<S: Simd> Form<S> for Single {
    type Element = f32;
    const BLOCK: usize = K_BLOCK;
    type Line = [f32; LANES];
    const INPUTS: usize = 1;
    type X = f32;
    const XS: usize = 1;
    type W<'a> = S::V;

    #[inline(always)]
    fn lines(elements: &[f32]) -> &[Self::Line] {
        elements.as_chunks().0
    }

    #[inline(always)]
    fn lay_out(row: &[f32], xs: &mut [f32]) {
        copy_padded(row, xs);
    }

    #[inline(always)]
    fn load(s: S, line: &Self::Line) -> S::V {
        s.load(line)
    }

    #[inline(always)]
    fn add<const R: usize>(s: S, acc: S::V, x: &[[f32; R]], r: usize, w: S::V) -> S::V {
        s.fma(s.splat(x[0][r]), w, acc)
    }
}

impl<S: Simd> Form<S> for Widened {
    type Element = u16;
    const BLOCK: usize = K_BLOCK;
    type Line = [u16; 2 * LANES];
    const INPUTS: usize = 2;
    type X = f32;
    const XS: usize = 2;
    type W<'a> = [S::V; 2];

    #[inline(always)]
    fn lines(elements: &[u16]) -> &[Self::Line] {
        elements.as_chunks().0
    }

    #[inline(always)]
    fn lay_out(row: &[f32], xs: &mut [f32]) {
        copy_padded(row, xs);
    }

    #[inline(always)]
    fn load(s: S, line: &Self::Line) -> [S::V; 2] {
        s.widen_pairs(line)
    }

    const WIDENS: bool = true;

    #[inline(always)]
    fn widen(s: S, lines: &[Self::Line], wide: &mut [[f32; LANES]]) {
        let steps = lines.as_chunks::<VECTORS>().0.iter();
        for (lines, wide) in steps.zip(wide.as_chunks_mut::<{ 2 * VECTORS }>().0) {
            for (v, line) in lines.iter().enumerate() {
                let [even, odd] = s.widen_pairs(line);
                s.store(&mut wide[v], even);
                s.store(&mut wide[VECTORS + v], odd);
            }
        }
    }

    #[inline(always)]
    fn add<const R: usize>(s: S, acc: S::V, x: &[[f32; R]], r: usize, w: [S::V; 2]) -> S::V {
        let acc = s.fma(s.splat(x[0][r]), w[0], acc);
        s.fma(s.splat(x[1][r]), w[1], acc)
    }
}

impl<S: Simd> Form<S> for Paired {
    type Element = u16;
    const BLOCK: usize = 2 * K_BLOCK;
    type Line = [u16; 2 * LANES];
    const INPUTS: usize = 2;
    /// Two bfloat16, the first in the low half.
    type X = u32;
    const XS: usize = 1;
    type W<'a> = &'a [u16; 2 * LANES];

    #[inline(always)]
    fn lines(elements: &[u16]) -> &[Self::Line] {
        elements.as_chunks().0
    }

    #[inline(always)]
    fn lay_out(row: &[f32], xs: &mut [u32]) {
        let pair = |[first, second]: [f32; 2]| {
            u32::from(bf16_bits(first)) | u32::from(bf16_bits(second)) << 16
        };
        let (pairs, odd) = row.as_chunks();
        let (known, beyond) = xs.split_at_mut(pairs.len());
        for (x, inputs) in known.iter_mut().zip(pairs) {
            *x = pair(*inputs);
        }
        beyond.fill(0);
        if let (Some(x), [last]) = (beyond.first_mut(), odd) {
            *x = pair([*last, 0.0]);
        }
    }

    #[inline(always)]
    fn load(_: S, line: &Self::Line) -> &[u16; 2 * LANES] {
        line
    }

    #[inline(always)]
    fn add<const R: usize>(
        s: S,
        acc: S::V,
        x: &[[u32; R]],
        r: usize,
        w: &[u16; 2 * LANES],
    ) -> S::V {
        s.dot_bf16(acc, x[0][r], w)
    }
}

/// Copies a row, then fills the rest with zeros.
#[inline(always)]
fn copy_padded(row: &[f32], xs: &mut [f32]) {
    let (known, beyond) = xs.split_at_mut(row.len());
    known.copy_from_slice(row);
    beyond.fill(0.0);
}

/// Returns the most rows of a tile on this instruction set.
pub(super) const fn rows_max<S: Simd>() -> usize {
    if S::TILE_VECTORS < ROWS_MAX { S::TILE_VECTORS } else { ROWS_MAX }
}

/// One block of inputs of one tile.
pub(super) struct Block<'a, S: Simd, F: Form<S>, A: Ahead> {
    /// `[input / (F::INPUTS / F::XS)][row]`
    pub(super) x: &'a [F::X],
    /// The panel's lines of this block, `[input / F::INPUTS][vector]`.
    pub(super) lines: &'a [F::Line],
    /// The memory that is prefetched meanwhile.
    pub(super) ahead: A,
}

/// Memory that is prefetched, a few cache lines a step.
pub(super) trait Ahead: Copy {
    /// Prefetches the memory of one step, whose operands are `x` and `weights`.
    fn ask<X, T>(self, step: usize, x: &X, weights: &[T; VECTORS]);
}

/// Weights that are read once, in one stream: prefetches those some kilobytes ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream;

/// The next weights, a cache line a step, and the activations of the next tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    /// The address of the first weights.
    pub(super) weights: *const u8,
    /// Bytes from activations to those of the next tile.
    pub(super) tile_bytes: usize,
}

impl Ahead for Stream {
    #[inline(always)]
    fn ask<X, T>(self, _: usize, _: &X, weights: &[T; VECTORS]) {
        for line in weights {
            prefetch_l2((&raw const *line).cast::<u8>().wrapping_add(STREAM_AHEAD));
        }
    }
}

impl Ahead for Next {
    #[inline(always)]
    fn ask<X, T>(self, step: usize, x: &X, _: &[T; VECTORS]) {
        prefetch(self.weights.wrapping_add(step * LINE_BYTES));
        prefetch((&raw const *x).cast::<u8>().wrapping_add(self.tile_bytes));
    }
}

impl<S: Simd, F: Form<S>, A: Ahead> Block<'_, S, F, A> {
    /// Adds the sums over the block to `totals`, one row each.
    #[inline(always)]
    pub(super) fn add_to(&self, s: S, totals: &mut [[f32; PANEL]]) {
        match totals.len() {
            1 => self.vectors::<1>(s, totals),
            2 => self.vectors::<2>(s, totals),
            3 => self.vectors::<3>(s, totals),
            4 => self.vectors::<4>(s, totals),
            5 => self.vectors::<5>(s, totals),
            6 => self.vectors::<6>(s, totals),
            7 => self.vectors::<7>(s, totals),
            8 => self.vectors::<8>(s, totals),
            9 => self.vectors::<9>(s, totals),
            10 => self.vectors::<10>(s, totals),
            11 => self.vectors::<11>(s, totals),
            12 => self.vectors::<12>(s, totals),
            _ => unreachable!("a tile has 1 to {ROWS_MAX} rows"),
        }
    }

    /// Sums all vectors of a panel at once where the registers hold their sums, else one by one.
    #[inline(always)]
    fn vectors<const R: usize>(&self, s: S, totals: &mut [[f32; PANEL]]) {
        if const { R * VECTORS <= S::TILE_VECTORS } {
            self.sum::<R, VECTORS>(s, 0, totals);
        } else if const { R <= S::TILE_VECTORS } {
            for vector in 0..VECTORS {
                self.sum::<R, 1>(s, vector, totals);
            }
        } else {
            unreachable!("{R} rows exceed the registers");
        }
    }

    #[inline(always)]
    fn sum<const R: usize, const V: usize>(&self, s: S, first: usize, totals: &mut [[f32; PANEL]]) {
        let x = self.x.as_chunks::<R>().0.chunks_exact(F::XS);
        let lines = &self.lines.as_chunks::<VECTORS>().0[..x.len()];
        let mut sums = [[s.splat(0.0); V]; R];
        for (i, (x, lines)) in x.zip(lines).enumerate() {
            self.ahead.ask(i, &x[0], lines);
            // Closures do not inherit the instruction set, hence the loops.
            let mut w = [F::load(s, &lines[first]); V];
            for (v, w) in w.iter_mut().enumerate().skip(1) {
                *w = F::load(s, &lines[first + v]);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = F::add(s, *sum, x, r, w);
                }
            }
        }
        for (total, sums) in totals.iter_mut().zip(sums) {
            let vectors = total.as_chunks_mut::<LANES>().0;
            for (total, sum) in vectors[first..first + V].iter_mut().zip(sums) {
                s.store(total, s.add(s.load(total), sum));
            }
        }
    }
}
