//! The product of many rows: one block of weights at a time, for all rows of a piece.

use std::ops::Range;

use super::micro::{Block, Form, LINE_BYTES, Next, Single, VECTORS};
use super::pack::{K_BLOCK, PANEL};
use super::product::Plan;
use crate::simd::{LANES, Simd, Task};
use crate::workspace::Scratch;

/// Panels of a piece. Their sums are kept while a block of activations, in L2, passes over them.
const PIECE_PANELS: usize = 4;

/// Rows of a piece. With 128 inputs they are a block of 240 KiB, with as many bytes of sums.
const PIECE_ROWS: usize = 480;

/// Rows whose results are written at once.
const ROWS_AT_ONCE: usize = 16;

/// Pieces a thread, so that other threads can take over the pieces of a delayed one.
const PIECES_PER_THREAD: usize = 3;

/// Fewest tiles for which it is cheaper to widen a block of weights once than in each tile.
const WIDEN_TILES: usize = 3;

/// The pieces of a product: panels by tiles of rows.
#[derive(Debug)]
pub(super) struct Grid {
    panels: usize,
    tiles: usize,
    /// Panels of the result a piece.
    width: usize,
    /// Tiles of a piece.
    height: usize,
}

impl Grid {
    /// Cuts a product with panels of `parts` parts and tiles of at most `rows` rows. Pieces get
    /// smaller where there would be too few of them for `threads`.
    pub(super) fn new(
        panels: usize,
        parts: usize,
        tiles: usize,
        rows: usize,
        threads: usize,
    ) -> Self {
        let columns = tiles.div_ceil((PIECE_ROWS / rows).max(1));
        let (width, height) = (PIECE_PANELS / parts, tiles.div_ceil(columns));
        let mut grid = Self { panels, tiles, width, height };
        while grid.pieces() < PIECES_PER_THREAD * threads {
            match (grid.width, grid.height) {
                (2.., _) => grid.width /= 2,
                (_, 2..) => grid.height = grid.height.div_ceil(2),
                _ => break,
            }
        }
        grid
    }

    /// Returns the number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.panels.div_ceil(self.width) * self.tiles.div_ceil(self.height)
    }

    /// Returns the panels and tiles of a piece. Neighbouring pieces share panels.
    pub(super) fn piece(&self, piece: usize) -> (Range<usize>, Range<usize>) {
        let across = self.tiles.div_ceil(self.height);
        let (panel, tile) = (piece / across * self.width, piece % across * self.height);
        let panels = panel..self.panels.min(panel + self.width);
        (panels, tile..self.tiles.min(tile + self.height))
    }
}

/// A block of weights in f32, on cache lines: a load that straddles two lines costs double.
#[repr(align(64))]
struct Wide([[f32; LANES]; K_BLOCK * VECTORS]);

/// One piece of a product.
pub(super) struct Blocked<'a, S: Simd, F: Form<S>> {
    pub(super) plan: &'a Plan<'a, S, F>,
    pub(super) panels: Range<usize>,
    pub(super) tiles: Range<usize>,
}

impl<S: Simd, F: Form<S>> Task<S> for Blocked<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let output = self.plan.product.output;
        let rows = self.plan.tiles.rows(self.tiles.clone());
        // `[part][panel][row]`
        let part_len = self.panels.len() * rows.len();
        let mut totals = Scratch::<[f32; PANEL]>::zeroed(output.parts() * part_len);
        let mut wide = Wide([[0.0; LANES]; K_BLOCK * VECTORS]);
        for steps in self.plan.blocks() {
            for (part, totals) in totals.chunks_exact_mut(part_len).enumerate() {
                let totals = totals.chunks_exact_mut(rows.len());
                for (panel, totals) in self.panels.clone().zip(totals) {
                    self.block(s, (part, panel), &steps, &mut wide.0, totals);
                }
            }
        }
        let (first, second) = totals.split_at_mut(part_len);
        // Rows of y lie on different pages. A few rows at a time keep them at hand for all panels.
        for start in (0..rows.len()).step_by(ROWS_AT_ONCE) {
            let end = rows.len().min(start + ROWS_AT_ONCE);
            for (p, panel) in self.panels.clone().enumerate() {
                let of_panel = p * rows.len() + start..p * rows.len() + end;
                let second = second.get(of_panel.clone()).unwrap_or_default();
                output.finish(s, panel, rows.start + start, &mut first[of_panel], second);
            }
        }
    }
}

impl<S: Simd, F: Form<S>> Blocked<'_, S, F> {
    /// Adds one block of inputs of one panel to the totals of all rows.
    #[inline(always)]
    fn block(
        &self,
        s: S,
        (part, panel): (usize, usize),
        steps: &Range<usize>,
        wide: &mut [[f32; LANES]],
        totals: &mut [[f32; PANEL]],
    ) {
        let plan = self.plan;
        let lines = &plan.lines(part, panel, steps.start)[..steps.len() * VECTORS];
        let next = self.next(part, panel, steps);
        let widens = F::WIDENS && self.tiles.len() >= WIDEN_TILES;
        if widens {
            F::widen(s, lines, wide);
        }
        let mut rest = totals;
        for tile in self.tiles.clone() {
            let rows = plan.tiles.rows(tile..tile + 1);
            let (totals, others) = rest.split_at_mut(rows.len());
            rest = others;
            let x = plan.x(&rows, steps);
            // Each tile prefetches its part of the next weights, and the next tile's activations.
            let part = (tile - self.tiles.start) * steps.len() * LINE_BYTES;
            let tile_bytes = plan.steps * F::XS * rows.len() * size_of::<F::X>();
            let ahead = Next { weights: next.wrapping_add(part), tile_bytes };
            if widens {
                let x = bytemuck::cast_slice(x);
                Block::<S, Single, Next> { x, lines: wide, ahead }.add_to(s, totals);
            } else {
                Block::<S, F, Next> { x, lines, ahead }.add_to(s, totals);
            }
        }
    }

    /// Returns the address of the weights that follow those of `part`, `panel` and `steps`.
    #[inline(always)]
    fn next(&self, part: usize, panel: usize, steps: &Range<usize>) -> *const u8 {
        let Range { start, end } = self.panels;
        let lines = if panel + 1 < end {
            self.plan.lines(part, panel + 1, steps.start)
        } else if part + 1 < self.plan.product.output.parts() {
            self.plan.lines(part + 1, start, steps.start)
        } else {
            self.plan.lines(0, start, steps.end)
        };
        lines.as_ptr().cast()
    }
}
