//! The products of groups of rows with dense weights, on vector instructions.

use super::groups::{Counted, RowGroups};
use super::micro::{Form, Paired, Single, Widened, rows_max};
use super::output::{Epilogue, Output};
use super::pack::{PANEL, PackedWeight};
use super::product::{LayOut, Plan, Product, RowTiles, steps_of};
use crate::simd::{Isa, Kernel, Simd};
use crate::threads::{SharedMut, for_each_piece, for_each_piece_of_stream};
use crate::workspace::Scratch;

/// Returns whether such weights are multiplied on vector instructions.
pub(super) fn takes(isa: Isa, weights: &PackedWeight) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(weights, PackedWeight::Bf16(_)) && isa.amx().is_some() {
        return false;
    }
    let _ = (isa, weights);
    true
}

/// Computes `x Wᵀ + b` of each group, or with `gates` its gated half. Weights are dense and alike.
pub(super) fn grouped(isa: Isa, x: &[f32], groups: &RowGroups<'_>, gates: bool, y: &mut [f32]) {
    let weight = groups.weight(0);
    let width = if gates { weight.out_features / 2 } else { weight.out_features };
    let (inputs, threads) = (weight.in_features, groups.threads_each());
    isa.run(Products { x, groups, inputs, width, gates, threads, y: SharedMut::new(y) });
}

struct Products<'a> {
    x: &'a [f32],
    groups: &'a RowGroups<'a>,
    inputs: usize,
    /// Columns of y.
    width: usize,
    gates: bool,
    /// The threads that the pieces of each product must be enough for.
    threads: usize,
    y: SharedMut<'a, f32>,
}

impl Kernel for Products<'_> {
    type Output = ();
    const HAS_PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.groups.weight(0).dense() {
            PackedWeight::F32(_) => self.multiply::<S, Single>(s, f32s),
            PackedWeight::Bf16(_) if S::HAS_DOT_BF16 => self.multiply::<S, Paired>(s, bf16s),
            PackedWeight::Bf16(_) => self.multiply::<S, Widened>(s, bf16s),
        }
    }
}

fn f32s(weights: &PackedWeight) -> &[f32] {
    match weights {
        PackedWeight::F32(elements) => elements,
        PackedWeight::Bf16(_) => unreachable!("weights of a group are alike"),
    }
}

fn bf16s(weights: &PackedWeight) -> &[u16] {
    match weights {
        PackedWeight::Bf16(elements) => elements,
        PackedWeight::F32(_) => unreachable!("weights of a group are alike"),
    }
}

impl Products<'_> {
    #[inline(always)]
    fn multiply<S: Simd, F: Form<S>>(&self, s: S, elements: fn(&PackedWeight) -> &[F::Element]) {
        let weight = self.groups.weight(0);
        let panels = weight.out_features.div_ceil(PANEL);
        let steps = steps_of::<S, F>(elements(weight.dense()), panels);
        let x = lay_out::<S, F>(s, self.x, self.inputs, steps, self.groups);
        let each = |group: usize| Each { products: self, group, elements, steps };
        let pieces = Counted::new(self.groups.len(), |group| {
            each(group).plan::<S, F, _>(&x, |plan| plan.pieces())
        });
        let work = self.x.len() * weight.out_features;
        for_each_piece_of_stream(pieces.total(), work, |piece| {
            let (group, piece) = pieces.place(piece);
            each(group).plan::<S, F, _>(&x, |plan| plan.piece(s, piece));
        });
    }
}

/// One of the products.
struct Each<'a, E> {
    products: &'a Products<'a>,
    group: usize,
    elements: fn(&PackedWeight) -> &[E],
    steps: usize,
}

impl<E> Each<'_, E> {
    /// Calls `run` with the product's plan. `x` holds the rows of all products, laid out. The plan
    /// is the same on every thread.
    #[inline(always)]
    fn plan<S: Simd, F: Form<S, Element = E>, R>(
        &self,
        x: &[F::X],
        run: impl FnOnce(&Plan<'_, S, F>) -> R,
    ) -> R {
        let Products { x: all, groups, inputs, width, gates, threads, y } = self.products;
        let rows = groups.rows(self.group);
        let part = |each: usize| rows.start * each..rows.end * each;
        let epilogue =
            if *gates { Epilogue::SwiGlu } else { Epilogue::Bias(groups.bias(self.group)) };
        let y = y.part(rows.start * width, rows.len() * width);
        let output = Output { y, outputs: *width, epilogue };
        let weights = groups.weight(self.group).dense();
        let product = Product { x: &all[part(*inputs)], inputs: *inputs, weights, output: &output };
        let x = &x[part(self.steps * F::XS)];
        run(&Plan::<S, F>::new(&product, (self.elements)(weights), x, *threads))
    }
}

/// Returns all rows in the form that steps broadcast. Those of a group lie together, and are cut in
/// tiles as in a product of the group alone.
#[inline(always)]
pub(super) fn lay_out<S: Simd, F: Form<S>>(
    s: S,
    x: &[f32],
    inputs: usize,
    steps: usize,
    groups: &RowGroups<'_>,
) -> Scratch<F::X> {
    let each = steps * F::XS;
    let mut laid_out = Scratch::new(x.len() / inputs * each);
    let shared = SharedMut::new(&mut laid_out);
    let tiles_of = |group: usize| RowTiles::new(groups.rows(group).len(), rows_max::<S>());
    let tiles = Counted::new(groups.len(), |group| tiles_of(group).count);
    for_each_piece(tiles.total(), x.len(), |tile| {
        let (group, tile) = tiles.place(tile);
        let first = groups.rows(group).start;
        let rows = tiles_of(group).rows(tile..tile + 1);
        let rows = first + rows.start..first + rows.end;
        // SAFETY: only one piece lays out a tile, and tiles are disjoint.
        let out = unsafe { shared.slice(rows.start * each, rows.len() * each) };
        s.enter(LayOut::<S, F> { x, inputs, rows, out });
    });
    laid_out
}
