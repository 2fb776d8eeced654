//! The maps on the CPU, with rows divided among threads.

use burn_flex::FlexTensor;

use super::ElementMap;
use crate::simd::{Isa, Kernel, Map, PairMap, Simd, limited, map_in_place, map_onto, tanh};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, owned};

/// Maps each element.
pub(crate) fn map_elements(x: FlexTensor, map: ElementMap) -> FlexTensor {
    let mut x = owned(x);
    let [_, cols] = dims2(&x);
    mapped(Isa::active(), values_mut(&mut x), cols, map);
    x
}

/// Computes `x + factor · y`.
pub(crate) fn add_scaled(x: FlexTensor, y: FlexTensor, factor: f32) -> FlexTensor {
    let [rows, cols] = dims2(&x);
    assert_eq!([rows, cols], dims2(&y), "add_scaled: shapes of x and y");
    let (mut x, y) = (owned(x), dense(y));
    added(Isa::active(), values_mut(&mut x), values(&y), cols, factor);
    give_back(y);
    x
}

/// Multiplies each row by its factor.
pub(crate) fn scale_rows(x: FlexTensor, factors: &[f32]) -> FlexTensor {
    let mut x = owned(x);
    let [rows, cols] = dims2(&x);
    assert_eq!(rows, factors.len(), "scale_rows: one factor a row");
    rows_scaled(Isa::active(), values_mut(&mut x), cols, factors);
    x
}

/// Multiplies each row by the logistic function of its gate.
pub(crate) fn gate_rows(x: FlexTensor, gate: FlexTensor) -> FlexTensor {
    let (mut x, gate) = (owned(x), dense(gate));
    let [rows, cols] = dims2(&x);
    assert_eq!([rows, 1], dims2(&gate), "gate_rows: shape of the gate");
    rows_gated(values_mut(&mut x), cols, values(&gate));
    give_back(gate);
    x
}

/// Multiplies rows in place by the logistic function of their gates. It has one exponential a row,
/// so the standard library's is used.
pub(super) fn rows_gated(x: &mut [f32], cols: usize, gate: &[f32]) {
    for_each_rows(x, cols, |first, x| {
        for (x, gate) in x.chunks_exact_mut(cols).zip(&gate[first..]) {
            let factor = 1.0 / (1.0 + (-gate).exp());
            x.iter_mut().for_each(|x| *x *= factor);
        }
    });
}

/// Maps in place on one instruction set.
pub(super) fn mapped(isa: Isa, x: &mut [f32], cols: usize, map: ElementMap) {
    for_each_rows(x, cols, |_, x| match map {
        ElementMap::Scale(factor) => isa.run(InPlace { x, f: Scale(factor) }),
        ElementMap::SoftCap(cap) => isa.run(InPlace { x, f: SoftCap(cap) }),
        ElementMap::Clamp(limit) => isa.run(InPlace { x, f: Clamp(limit) }),
    });
}

/// Adds in place on one instruction set.
pub(super) fn added(isa: Isa, x: &mut [f32], y: &[f32], cols: usize, factor: f32) {
    for_each_rows(x, cols, |first, x| {
        let y = &y[first * cols..][..x.len()];
        isa.run(AddScaled { x, y, factor });
    });
}

/// Multiplies rows in place on one instruction set.
pub(super) fn rows_scaled(isa: Isa, x: &mut [f32], cols: usize, factors: &[f32]) {
    for_each_rows(x, cols, |first, x| {
        for (x, factor) in x.chunks_exact_mut(cols).zip(&factors[first..]) {
            isa.run(InPlace { x, f: Scale(*factor) });
        }
    });
}

/// The task of mapping elements in place.
pub(crate) struct InPlace<'a, F> {
    pub(crate) x: &'a mut [f32],
    pub(crate) f: F,
}

impl<F: Map> Kernel for InPlace<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_in_place(s, self.x, self.f);
    }
}

/// The task of adding multiples of y to x.
struct AddScaled<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
    factor: f32,
}

impl Kernel for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_onto(s, self.x, self.y, PlusScaled(self.factor));
    }
}

/// The map `x · factor`.
#[derive(Clone, Copy)]
struct Scale(f32);

impl Map for Scale {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.mul(x, s.splat(self.0))
    }
}

/// The map `cap · tanh(x / cap)`.
#[derive(Clone, Copy)]
struct SoftCap(f32);

impl Map for SoftCap {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let cap = s.splat(self.0);
        s.mul(cap, tanh(s, s.div(x, cap)))
    }
}

/// The map to values within `±limit`.
#[derive(Clone, Copy)]
pub(crate) struct Clamp(pub(crate) f32);

impl Map for Clamp {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        limited(s, x, self.0)
    }
}

/// The map `x + factor · y`.
#[derive(Clone, Copy)]
struct PlusScaled(f32);

impl PairMap for PlusScaled {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, y: S::V) -> S::V {
        s.fma(y, s.splat(self.0), x)
    }
}
