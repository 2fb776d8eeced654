//! The activations on the CPU, with rows divided among threads.

use burn_flex::FlexTensor;

use super::Activation;
use super::functions::{self, with_map};
pub(crate) use super::functions::{Gate, Silu};
use crate::elementwise::cpu::InPlace;
use crate::simd::{Isa, Kernel, Map, PairMap, Simd, map_in_place, map_onto, map_row};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, owned, tensor};

/// Computes `f(x)`.
pub(crate) fn activate(x: FlexTensor, activation: Activation) -> FlexTensor {
    let mut x = owned(x);
    let [_, width] = dims2(&x);
    activated(Isa::active(), values_mut(&mut x), width, activation);
    x
}

/// Computes `f(gate) * up`.
pub(crate) fn gated(gate_up: FlexTensor, activation: Activation) -> FlexTensor {
    let [rows, width] = dims2(&gate_up);
    assert!(width.is_multiple_of(2), "gated: width {width} must be even");
    let gate_up = dense(gate_up);
    let mut y = tensor(rows, width / 2);
    gated_into(Isa::active(), values(&gate_up), width / 2, activation, values_mut(&mut y));
    give_back(gate_up);
    y
}

/// Computes `f(x)` of a row in place.
#[inline(always)]
pub(crate) fn activate_row<S: Simd>(s: S, x: &mut [f32], activation: Activation) {
    with_map!(activation, f => map_in_place(s, x, f));
}

/// The task of computing `f(x)` in place.
pub(crate) struct Activated<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) activation: Activation,
}

impl Kernel for Activated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        activate_row(s, self.x, self.activation);
    }
}

/// Multiplies a row by `f(scale · gate)` of a row of equal length, in place.
#[inline(always)]
pub(crate) fn gate_row<S: Simd>(
    s: S,
    x: &mut [f32],
    gate: &[f32],
    scale: f32,
    activation: Activation,
) {
    with_map!(activation, f => map_onto(s, x, gate, ScaledGate { f, scale }));
}

/// The map `x · f(scale · gate)`.
#[derive(Clone, Copy)]
struct ScaledGate<F> {
    f: F,
    scale: f32,
}

impl<F: Map> PairMap for ScaledGate<F> {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, gate: S::V) -> S::V {
        s.mul(x, self.f.map(s, s.mul(gate, s.splat(self.scale))))
    }
}

/// Computes `f(x)` in place on one instruction set.
pub(crate) fn activated(isa: Isa, x: &mut [f32], width: usize, activation: Activation) {
    for_each_rows(x, width, |_, x| {
        with_map!(activation, f => isa.run(InPlace { x, f }));
    });
}

/// Computes `f(gate) * up` on one instruction set, into y `[rows, inter]`.
pub(crate) fn gated_into(
    isa: Isa,
    gate_up: &[f32],
    inter: usize,
    activation: Activation,
    y: &mut [f32],
) {
    for_each_rows(y, inter, |first, y| {
        let gate_up = &gate_up[first * 2 * inter..][..2 * y.len()];
        with_map!(activation, f => isa.run(GateRows { gate_up, inter, f, y }));
    });
}

/// The task of gating some rows.
struct GateRows<'a, F> {
    gate_up: &'a [f32],
    inter: usize,
    f: F,
    y: &'a mut [f32],
}

impl<F: Map> Kernel for GateRows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.gate_up.chunks_exact(2 * self.inter);
        for (row, out) in rows.zip(self.y.chunks_exact_mut(self.inter)) {
            let (gate, up) = row.split_at(self.inter);
            map_row(s, gate, up, out, Gate(self.f));
        }
    }
}
