//! The product with activations that are not quantized. Each block of weights becomes numbers once,
//! for all rows of a piece, and is then multiplied like a dense weight.

use std::ops::Range;

use super::dequantize::{Decoder, Span, spans};
use super::fused::{Few, Multiplied, ROWS_MAX, TILE_VECTORS_MIN};
use super::pack::PackedQuantized;
use crate::linear::blocked::Grid;
use crate::linear::cpu::panels_per_piece;
use crate::linear::micro::{Ahead, Block, Form, Paired, Single, VECTORS, rows_max};
use crate::linear::output::Output;
use crate::linear::pack::PANEL;
use crate::linear::product::{Cut, LaidOut, PIECES_PER_THREAD, RowTiles, lay_out};
use crate::simd::{Kernel, Simd, Task, prefetch};
use crate::threads::{for_each_piece, for_each_piece_of_stream, num_threads};
use crate::workspace::Scratch;

/// Bytes between a stream's reads and its prefetches of codes.
const STREAM_AHEAD: usize = 4096;

/// The product `x Wᵀ` for row-major x `[rows, inputs]`.
pub(super) struct FloatProduct<'a> {
    pub(super) x: &'a [f32],
    pub(super) weight: &'a PackedQuantized,
    pub(super) output: &'a Output<'a>,
    /// Whether weights and activations may be rounded to bfloat16, where bfloat16 has dot products.
    pub(super) may_round: bool,
}

impl Kernel for FloatProduct<'_> {
    type Output = ();
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.may_round && S::HAS_DOT_BF16 {
            self.multiply::<S, Paired>(s);
        } else {
            self.multiply::<S, Single>(s);
        }
    }
}

impl FloatProduct<'_> {
    #[inline(always)]
    fn multiply<S: Simd, F: Multiplied<S>>(&self, s: S) {
        let inputs = self.weight.header.groups.inputs;
        let tiles = RowTiles::new(self.x.len() / inputs, rows_max::<S>());
        let steps = inputs.div_ceil(F::INPUTS);
        let x = match &self.weight.input_order {
            None => lay_out::<S, F>(s, self.x, inputs, steps, tiles),
            Some(order) => {
                let mut ordered = Scratch::new(self.x.len());
                reorder(self.x, order, &mut ordered);
                lay_out::<S, F>(s, &ordered, inputs, steps, tiles)
            }
        };
        Plan::<S, F>::new(self, &x, num_threads()).run(s);
    }
}

/// A product on one instruction set, with its activations laid out.
pub(super) struct Plan<'a, S: Simd, F: Form<S>> {
    product: &'a FloatProduct<'a>,
    tiles: RowTiles,
    x: LaidOut<'a, S, F>,
    cut: Cut,
}

impl<'a, S: Simd, F: Multiplied<S>> Plan<'a, S, F> {
    /// Cuts a product into pieces for `threads`. `x` holds the product's rows, laid out.
    #[inline(always)]
    pub(super) fn new(product: &'a FloatProduct<'a>, x: &'a [F::X], threads: usize) -> Self {
        let header = &product.weight.header;
        let (inputs, panels) = (header.groups.inputs, header.panels());
        let tiles = RowTiles::new(product.x.len() / inputs, rows_max::<S>());
        let cut = if tiles.count <= 1 {
            let most = panels.div_ceil(PIECES_PER_THREAD * threads);
            Cut::Stream { per_piece: panels_per_piece(header.panel_bytes()).min(most) }
        } else {
            Cut::Blocks(Grid::new(panels, 1, tiles.count, rows_max::<S>(), threads))
        };
        let x = LaidOut { steps: inputs.div_ceil(F::INPUTS), x };
        Self { product, tiles, x, cut }
    }

    #[inline(always)]
    fn run(&self, s: S) {
        let work = self.product.x.len() * self.product.weight.header.outputs;
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
            Cut::Stream { per_piece } => self.product.weight.header.panels().div_ceil(*per_piece),
            Cut::Blocks(grid) => grid.pieces(),
        }
    }

    /// Computes a piece.
    #[inline(always)]
    pub(super) fn piece(&self, s: S, piece: usize) {
        let (panels, tiles) = match &self.cut {
            Cut::Stream { per_piece } => {
                let panels = self.product.weight.header.panels();
                (piece * per_piece..panels.min((piece + 1) * per_piece), 0..1)
            }
            Cut::Blocks(grid) => grid.piece(piece),
        };
        s.enter(Piece { plan: self, panels, tiles });
    }
}

/// Writes rows with their columns in the order of the weight's columns.
pub(super) fn reorder(x: &[f32], order: &[u32], ordered: &mut [f32]) {
    let rows = ordered.chunks_exact_mut(order.len()).zip(x.chunks_exact(order.len()));
    for (ordered, row) in rows {
        for (ordered, input) in ordered.iter_mut().zip(order) {
            *ordered = row[*input as usize];
        }
    }
}

/// Some panels, for some tiles of rows.
struct Piece<'a, S: Simd, F: Form<S>> {
    plan: &'a Plan<'a, S, F>,
    panels: Range<usize>,
    tiles: Range<usize>,
}

impl<S: Simd, F: Multiplied<S>> Task<S> for Piece<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let weight = self.plan.product.weight;
        let is_stream = self.plan.tiles.count == 1;
        let ahead = if is_stream { STREAM_AHEAD } else { weight.header.panel_bytes() };
        let mut decoder = Decoder::new(weight, F::BLOCK, ahead);
        if const { S::TILE_VECTORS >= TILE_VECTORS_MIN } {
            match self.plan.tiles.rows {
                1 => return self.few::<1>(s, &mut decoder),
                ROWS_MAX => return self.few::<ROWS_MAX>(s, &mut decoder),
                _ => {}
            }
        }
        let mut lines = Scratch::<F::Line>::new(F::BLOCK / F::INPUTS * VECTORS);
        // A stream reads one panel after the other. Many rows use a block of each panel while their
        // block of the activations is in L2.
        let at_once = if is_stream { 1 } else { self.panels.len() };
        for first in self.panels.clone().step_by(at_once) {
            let panels = first..self.panels.end.min(first + at_once);
            self.panels(s, panels, &mut decoder, &mut lines);
        }
    }
}

impl<S: Simd, F: Multiplied<S>> Piece<'_, S, F> {
    /// Multiplies all panels for few rows, two panels at a time.
    #[inline(always)]
    fn few<const R: usize>(&self, s: S, decoder: &mut Decoder<'_>) {
        let Range { start, end } = self.panels;
        for panel in (start..end).step_by(2) {
            if panel + 1 < end {
                self.few_panels::<R, 2>(s, panel, decoder);
            } else {
                self.few_panels::<R, 1>(s, panel, decoder);
            }
        }
    }

    #[inline(always)]
    fn few_panels<const R: usize, const P: usize>(
        &self,
        s: S,
        panel: usize,
        decoder: &mut Decoder<'_>,
    ) {
        let FloatProduct { weight, output, .. } = self.plan.product;
        let mut few = Few { decoder, panel, totals: [[[0.0; PANEL]; R]; P] };
        for span in spans(weight.header.groups, F::BLOCK) {
            few.add::<S, F>(s, &span, self.plan.x.block(&(0..R), &steps::<S, F>(&span)));
        }
        for (p, totals) in few.totals.iter_mut().enumerate() {
            output.finish(s, panel + p, 0, totals, &[]);
        }
    }

    /// Multiplies some panels for many rows.
    #[inline(always)]
    fn panels(&self, s: S, panels: Range<usize>, decoder: &mut Decoder<'_>, lines: &mut [F::Line]) {
        let FloatProduct { weight, output, .. } = self.plan.product;
        let rows = self.plan.tiles.rows(self.tiles.clone());
        // `[panel][row]`
        let mut totals = Scratch::<[f32; PANEL]>::zeroed(panels.len() * rows.len());
        for span in spans(weight.header.groups, F::BLOCK) {
            for (panel, totals) in panels.clone().zip(totals.chunks_exact_mut(rows.len())) {
                decoder.decode::<S, F>(s, panel, &span, lines);
                self.add(s, &span, lines, totals);
            }
        }
        for (panel, totals) in panels.zip(totals.chunks_exact_mut(rows.len())) {
            output.finish(s, panel, rows.start, totals, &[]);
        }
    }

    /// Adds one span of one panel to the totals of all rows.
    #[inline(always)]
    fn add(&self, s: S, span: &Span, lines: &[F::Line], totals: &mut [[f32; PANEL]]) {
        let plan = self.plan;
        let steps = steps::<S, F>(span);
        let lines = &lines[..steps.len() * VECTORS];
        let mut rest = totals;
        for tile in self.tiles.clone() {
            let rows = plan.tiles.rows(tile..tile + 1);
            let (totals, others) = rest.split_at_mut(rows.len());
            rest = others;
            let x = plan.x.block(&rows, &steps);
            let tile_bytes = plan.x.tile_bytes(rows.len());
            Block::<S, F, NextRows> { x, lines, ahead: NextRows { tile_bytes } }.add_to(s, totals);
        }
    }
}

/// Returns the steps of a span.
#[inline(always)]
fn steps<S: Simd, F: Form<S>>(span: &Span) -> Range<usize> {
    span.inputs.start / F::INPUTS..span.inputs.end.div_ceil(F::INPUTS)
}

/// The activations of the next tile, as memory to prefetch.
#[derive(Debug, Clone, Copy)]
struct NextRows {
    /// Bytes from activations to those of the next tile.
    tile_bytes: usize,
}

impl Ahead for NextRows {
    #[inline(always)]
    fn ask<X, T>(self, _: usize, x: &X, _: &[T; VECTORS]) {
        prefetch((&raw const *x).cast::<u8>().wrapping_add(self.tile_bytes));
    }
}
