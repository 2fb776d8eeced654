//! The two sums of a piece on one instruction set. A row's sums have the same order whatever
//! the other rows of the piece are.

use std::array::from_fn;

use super::Block;
use crate::simd::{Element, Kernel, LANES, Simd, sum_of};
use crate::threads::SharedMut;

/// Outputs of a panel of B: two vectors.
pub(super) const OUTPUTS: usize = 2 * LANES;

/// `scale · A x` for some rows of A and of x.
pub(super) struct Shrink<'a, E> {
    /// `[ranks][a_width]`
    pub(super) a: &'a [E],
    pub(super) a_width: usize,
    pub(super) inputs: usize,
    /// `[num_tokens, inputs]`
    pub(super) x: &'a [f32],
    pub(super) rows: &'a [u32],
    /// The place of the first row of `a` among all ranks.
    pub(super) first_rank: usize,
    /// All ranks: the width of a row of `low`.
    pub(super) rank: usize,
    pub(super) blocks: &'a [Block],
    pub(super) low: &'a SharedMut<'a, f32>,
    /// The place of the first row in `low`.
    pub(super) start: usize,
}

impl<E: Element> Kernel for Shrink<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut of_a = self.a.chunks_exact(4 * self.a_width);
        let mut first = self.first_rank;
        for a in of_a.by_ref() {
            self.products::<S, 4>(s, a, first);
            first += 4;
        }
        for a in of_a.remainder().chunks_exact(self.a_width) {
            self.products::<S, 1>(s, a, first);
            first += 1;
        }
    }
}

impl<E: Element> Shrink<'_, E> {
    /// Multiplies `J` rows of A with all rows of x.
    #[inline(always)]
    fn products<S: Simd, const J: usize>(&self, s: S, a: &[E], first_rank: usize) {
        let a: [&[E]; J] = from_fn(|j| &a[j * self.a_width..(j + 1) * self.a_width]);
        let scales: [f32; J] = from_fn(|j| self.scale(first_rank + j));
        for (place, row) in self.rows.iter().enumerate() {
            let x = &self.x[*row as usize * self.inputs..][..self.inputs];
            let sums = dots(s, x, a);
            let start = self.start + place * self.rank + first_rank;
            // SAFETY: a piece has rows of x and of A that no other piece has both of.
            let low = unsafe { self.low.slice(start, J) };
            for ((low, sum), scale) in low.iter_mut().zip(sums).zip(scales) {
                *low = sum * scale;
            }
        }
    }

    fn scale(&self, rank: usize) -> f32 {
        let block = self.blocks.iter().find(|block| rank < block.first_rank + block.rank);
        block.map_or(0.0, |block| block.scale)
    }
}

/// Returns the products of `x` with rows of A, which are filled up with zeros.
#[inline(always)]
fn dots<S: Simd, E: Element, const J: usize>(s: S, x: &[f32], a: [&[E]; J]) -> [f32; J] {
    let mut sums = [s.splat(0.0); J];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for (n, x) in vectors.iter().enumerate() {
        let x = s.load(x);
        for (sum, a) in sums.iter_mut().zip(a) {
            *sum = s.fma(E::widen_at(s, a, n), x, *sum);
        }
    }
    if !rest.is_empty() {
        let mut last = [0.0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        let x = s.load(&last);
        for (sum, a) in sums.iter_mut().zip(a) {
            *sum = s.fma(E::widen_at(s, a, vectors.len()), x, *sum);
        }
    }
    let mut products = [0.0; J];
    for (product, sum) in products.iter_mut().zip(sums) {
        *product = sum_of(s, sum);
    }
    products
}

/// `y += B low` for some panels of B.
pub(super) struct Expand<'a, E> {
    /// `[panels][rank of the block][OUTPUTS]`
    pub(super) b: &'a [E],
    pub(super) block: Block,
    pub(super) first_panel: usize,
    pub(super) rows: &'a [u32],
    /// `[rows][rank]`
    pub(super) low: &'a [f32],
    pub(super) rank: usize,
    pub(super) out_features: usize,
    pub(super) y: &'a SharedMut<'a, f32>,
}

impl<E: Element> Kernel for Expand<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let panels = self.b.chunks_exact(self.block.rank * OUTPUTS);
        for (panel, b) in panels.enumerate() {
            let mut place = 0;
            // As many rows as the registers hold sums of.
            while S::TILE_VECTORS >= 8 && place + 4 <= self.rows.len() {
                self.add::<S, 4>(s, self.first_panel + panel, b, place);
                place += 4;
            }
            while place + 2 <= self.rows.len() {
                self.add::<S, 2>(s, self.first_panel + panel, b, place);
                place += 2;
            }
            if place < self.rows.len() {
                self.add::<S, 1>(s, self.first_panel + panel, b, place);
            }
        }
    }
}

impl<E: Element> Expand<'_, E> {
    /// Adds a panel's outputs to `R` rows of y.
    #[inline(always)]
    fn add<S: Simd, const R: usize>(&self, s: S, panel: usize, b: &[E], place: usize) {
        let Block { first_rank, rank, first_output, outputs, .. } = self.block;
        let low: [&[f32]; R] =
            from_fn(|r| &self.low[(place + r) * self.rank + first_rank..][..rank]);
        let mut sums = [[s.splat(0.0); 2]; R];
        for (j, b) in b.chunks_exact(OUTPUTS).enumerate() {
            let b = [E::widen_at(s, b, 0), E::widen_at(s, b, 1)];
            for (sums, low) in sums.iter_mut().zip(low) {
                let low = s.splat(low[j]);
                sums[0] = s.fma(low, b[0], sums[0]);
                sums[1] = s.fma(low, b[1], sums[1]);
            }
        }
        let width = OUTPUTS.min(outputs - panel * OUTPUTS);
        for (r, sums) in sums.into_iter().enumerate() {
            let row = self.rows[place + r] as usize;
            let start = row * self.out_features + first_output + panel * OUTPUTS;
            let mut added = [0.0; OUTPUTS];
            let (halves, _) = added.as_chunks_mut::<LANES>();
            for (half, sum) in halves.iter_mut().zip(sums) {
                s.store(half, sum);
            }
            // SAFETY: only one piece has this panel of this row, and no row is in two segments.
            let y = unsafe { self.y.slice(start, width) };
            y.iter_mut().zip(added).for_each(|(y, added)| *y += added);
        }
    }
}
