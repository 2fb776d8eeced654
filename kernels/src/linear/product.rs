//! The product on vector instructions. Few rows stream the weights past a single tile of sums. Many
//! rows pass over blocks of weights that stay in the caches meanwhile.

use std::ops::Range;

use bytemuck::Zeroable;

use super::blocked::{Blocked, Grid};
use super::cpu::panels_per_piece;
use super::micro::{Block, Form, Paired, ROWS_MAX, Single, Stream, VECTORS, Widened, rows_max};
use super::output::Output;
use super::pack::{PANEL, PackedWeight};
use crate::simd::{Kernel, Simd, Task};
use crate::threads::{SharedMut, for_each_piece, for_each_piece_of_stream, num_threads};
use crate::workspace::Scratch;

/// Pieces of a stream for each thread, so that other threads can take over those of a delayed one.
pub(super) const PIECES_PER_THREAD: usize = 4;

/// The product `x Wᵀ` for row-major x `[rows, inputs]`.
pub(super) struct Product<'a> {
    pub(super) x: &'a [f32],
    pub(super) inputs: usize,
    pub(super) weights: &'a PackedWeight,
    pub(super) output: &'a Output<'a>,
}

impl Kernel for Product<'_> {
    type Output = ();
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weights {
            PackedWeight::F32(weights) => self.multiply::<S, Single>(s, weights),
            PackedWeight::Bf16(weights) if S::HAS_DOT_BF16 => {
                self.multiply::<S, Paired>(s, weights);
            }
            PackedWeight::Bf16(weights) => self.multiply::<S, Widened>(s, weights),
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn multiply<S: Simd, F: Form<S>>(&self, s: S, weights: &[F::Element]) {
        let panels = self.output.panels() * self.output.parts();
        let steps = steps_of::<S, F>(weights, panels);
        let tiles = RowTiles::new(self.x.len() / self.inputs, rows_max::<S>());
        let x = lay_out::<S, F>(s, self.x, self.inputs, steps, tiles);
        Plan::<S, F>::new(self, weights, &x, num_threads()).run(s);
    }
}

/// Returns the steps of a panel of packed weights, of which there are `panels`.
pub(super) fn steps_of<S: Simd, F: Form<S>>(weights: &[F::Element], panels: usize) -> usize {
    F::lines(weights).len() / (panels * VECTORS)
}

/// Rows cut into the fewest possible tiles, whose sizes differ by at most one. A row's sums do not
/// depend on its tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTiles {
    pub(super) rows: usize,
    pub(super) count: usize,
}

impl RowTiles {
    pub(super) fn new(rows: usize, max: usize) -> Self {
        Self { rows, count: rows.div_ceil(max) }
    }

    fn start(self, tile: usize) -> usize {
        tile * self.rows / self.count
    }

    pub(super) fn rows(self, tiles: Range<usize>) -> Range<usize> {
        self.start(tiles.start)..self.start(tiles.end)
    }
}

/// A product on one instruction set, with its activations laid out.
pub(super) struct Plan<'a, S: Simd, F: Form<S>> {
    pub(super) product: &'a Product<'a>,
    /// `[panel][input / F::INPUTS][vector]`
    lines: &'a [F::Line],
    /// Lines of a panel for each vector: `inputs / F::INPUTS`, with the layout's padding.
    pub(super) steps: usize,
    /// Panels of the result.
    panels: usize,
    pub(super) tiles: RowTiles,
    x: LaidOut<'a, S, F>,
    cut: Cut,
}

/// The pieces of a product.
#[derive(Debug)]
pub(super) enum Cut {
    /// Neighbouring panels, for a single tile of rows.
    Stream {
        /// Panels of a piece.
        per_piece: usize,
    },
    /// Panels by tiles of rows.
    Blocks(Grid),
}

impl<'a, S: Simd, F: Form<S>> Plan<'a, S, F> {
    /// Cuts a product into pieces for `threads`. `x` holds the product's rows, laid out.
    #[inline(always)]
    pub(super) fn new(
        product: &'a Product<'a>,
        weights: &'a [F::Element],
        x: &'a [F::X],
        threads: usize,
    ) -> Self {
        let (panels, parts) = (product.output.panels(), product.output.parts());
        let steps = steps_of::<S, F>(weights, panels * parts);
        let tiles = RowTiles::new(product.x.len() / product.inputs, rows_max::<S>());
        let cut = if tiles.count <= 1 {
            let bytes = steps * VECTORS * size_of::<F::Line>();
            let most = panels.div_ceil(PIECES_PER_THREAD * threads);
            Cut::Stream { per_piece: panels_per_piece(bytes).min(most) }
        } else {
            Cut::Blocks(Grid::new(panels, parts, tiles.count, rows_max::<S>(), threads))
        };
        let x = LaidOut { steps, x };
        Self { product, lines: F::lines(weights), steps, panels, tiles, x, cut }
    }

    #[inline(always)]
    fn run(&self, s: S) {
        let work = self.product.x.len() * self.product.output.outputs * self.product.output.parts();
        match self.cut {
            Cut::Stream { .. } => {
                for_each_piece_of_stream(self.pieces(), work, |piece| self.piece(s, piece));
            }
            Cut::Blocks(_) => for_each_piece(self.pieces(), work, |piece| self.piece(s, piece)),
        }
    }

    /// Returns the number of pieces.
    #[inline(always)]
    pub(super) fn pieces(&self) -> usize {
        match &self.cut {
            Cut::Stream { .. } if self.tiles.rows == 0 => 0,
            Cut::Stream { per_piece } => self.panels.div_ceil(*per_piece),
            Cut::Blocks(grid) => grid.pieces(),
        }
    }

    /// Computes a piece.
    #[inline(always)]
    pub(super) fn piece(&self, s: S, piece: usize) {
        match &self.cut {
            Cut::Stream { per_piece } => {
                let panels = piece * per_piece..self.panels.min((piece + 1) * per_piece);
                s.enter(Streamed { plan: self, panels });
            }
            Cut::Blocks(grid) => {
                let (panels, tiles) = grid.piece(piece);
                s.enter(Blocked { plan: self, panels, tiles });
            }
        }
    }

    /// Returns the steps of each block of inputs, in order.
    #[inline(always)]
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<S, F> {
        let (steps, block) = (self.steps, F::BLOCK / F::INPUTS);
        (0..steps).step_by(block).map(move |first| first..steps.min(first + block))
    }

    /// Returns the activations for a block of a tile of rows.
    #[inline(always)]
    pub(super) fn x(&self, rows: &Range<usize>, steps: &Range<usize>) -> &[F::X] {
        self.x.block(rows, steps)
    }

    /// Returns the lines of a part of a panel of the result, from a step on, and all that follow.
    #[inline(always)]
    pub(super) fn lines(&self, part: usize, panel: usize, step: usize) -> &[F::Line] {
        &self.lines[((part * self.panels + panel) * self.steps + step) * VECTORS..]
    }
}

/// Returns row-major x `[rows, inputs]` in the form that steps broadcast, as
/// `[tile][step · F::XS][row of the tile]`.
#[inline(always)]
pub(super) fn lay_out<S: Simd, F: Form<S>>(
    s: S,
    x: &[f32],
    inputs: usize,
    steps: usize,
    tiles: RowTiles,
) -> Scratch<F::X> {
    let mut laid_out = Scratch::new(tiles.rows * steps * F::XS);
    let shared = SharedMut::new(&mut laid_out);
    for_each_piece(tiles.count, x.len(), |tile| {
        let rows = tiles.rows(tile..tile + 1);
        // SAFETY: only one piece lays out a tile.
        let out = unsafe { shared.slice(rows.start * steps * F::XS, rows.len() * steps * F::XS) };
        s.enter(LayOut::<S, F> { x, inputs, rows, out });
    });
    laid_out
}

/// Activations in the form that steps broadcast.
pub(super) struct LaidOut<'a, S: Simd, F: Form<S>> {
    /// Steps of a row.
    pub(super) steps: usize,
    /// `[tile][step · F::XS][row of the tile]`
    pub(super) x: &'a [F::X],
}

impl<S: Simd, F: Form<S>> LaidOut<'_, S, F> {
    /// Returns the activations for a block of a tile of rows.
    #[inline(always)]
    pub(super) fn block(&self, rows: &Range<usize>, steps: &Range<usize>) -> &[F::X] {
        let tile = &self.x[rows.start * self.steps * F::XS..rows.end * self.steps * F::XS];
        &tile[steps.start * F::XS * rows.len()..steps.end * F::XS * rows.len()]
    }

    /// Returns the bytes of a tile of `rows` rows.
    #[inline(always)]
    pub(super) fn tile_bytes(&self, rows: usize) -> usize {
        self.steps * F::XS * rows * size_of::<F::X>()
    }
}

/// Elements of a row that are laid out before the next row's. The lines that they are written to
/// stay in L1, so that each is fetched once and not once a row.
const STRETCH: usize = 64;

/// The task of laying out one tile of rows.
pub(super) struct LayOut<'a, S: Simd, F: Form<S>> {
    /// All rows, row-major.
    pub(super) x: &'a [f32],
    pub(super) inputs: usize,
    pub(super) rows: Range<usize>,
    pub(super) out: &'a mut [F::X],
}

impl<S: Simd, F: Form<S>> Task<S> for LayOut<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: S) {
        let inputs = self.inputs;
        let width = self.rows.len();
        let x = &self.x[self.rows.start * inputs..self.rows.end * inputs];
        let mut xs = [F::X::zeroed(); STRETCH];
        for (part, out) in self.out.chunks_mut(STRETCH * width).enumerate() {
            let first = (part * STRETCH * F::X_INPUTS).min(inputs);
            let last = (first + out.len() / width * F::X_INPUTS).min(inputs);
            for (r, row) in x.chunks_exact(inputs).enumerate() {
                let xs = &mut xs[..out.len() / width];
                F::lay_out(&row[first..last], xs);
                for (out, x) in out.iter_mut().skip(r).step_by(width).zip(xs) {
                    *out = *x;
                }
            }
        }
    }
}

/// Some panels of a product, for a single tile of rows: a stream of weights.
struct Streamed<'a, S: Simd, F: Form<S>> {
    plan: &'a Plan<'a, S, F>,
    panels: Range<usize>,
}

impl<S: Simd, F: Form<S>> Task<S> for Streamed<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let plan = self.plan;
        let rows = 0..plan.tiles.rows;
        for panel in self.panels {
            // `[part][row]`
            let mut totals = [[[0.0; PANEL]; ROWS_MAX]; 2];
            let parts = plan.product.output.parts();
            for (part, totals) in totals.iter_mut().enumerate().take(parts) {
                for steps in plan.blocks() {
                    let (x, lines) = (plan.x(&rows, &steps), plan.lines(part, panel, steps.start));
                    let block = Block::<S, F, Stream> { x, lines, ahead: Stream };
                    block.add_to(s, &mut totals[rows.clone()]);
                }
            }
            let [first, second] = &mut totals;
            let (first, second) = (&mut first[rows.clone()], &second[rows.clone()]);
            plan.product.output.finish(s, panel, 0, first, second);
        }
    }
}
