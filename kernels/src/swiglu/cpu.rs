//! The gated activation on the CPU, with rows divided among threads.

use burn_flex::FlexTensor;

use crate::simd::{Isa, Kernel, PairMap, Simd, exp, map_row};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, tensor};

/// Computes `silu(gate) * up`.
pub(crate) fn swiglu(gate_up: FlexTensor) -> FlexTensor {
    let [rows, width] = dims2(&gate_up);
    assert!(width.is_multiple_of(2), "swiglu: width {width} must be even");
    let gate_up = dense(gate_up);
    let mut y = tensor(rows, width / 2);
    gated(Isa::active(), values(&gate_up), width / 2, values_mut(&mut y));
    give_back(gate_up);
    y
}

/// Computes the same on one instruction set, into y `[rows, inter]`.
pub(crate) fn gated(isa: Isa, gate_up: &[f32], inter: usize, y: &mut [f32]) {
    for_each_rows(y, inter, |first, y| {
        let gate_up = &gate_up[first * 2 * inter..][..2 * y.len()];
        isa.run(GateRows { gate_up, inter, y });
    });
}

/// The task of gating some rows.
struct GateRows<'a> {
    gate_up: &'a [f32],
    inter: usize,
    y: &'a mut [f32],
}

impl Kernel for GateRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.gate_up.chunks_exact(2 * self.inter);
        for (row, out) in rows.zip(self.y.chunks_exact_mut(self.inter)) {
            let (gate, up) = row.split_at(self.inter);
            map_row(s, gate, up, out, Gate);
        }
    }
}

/// The map `gate · σ(gate) · up`.
#[derive(Clone, Copy)]
pub(crate) struct Gate;

impl PairMap for Gate {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, gate: S::V, up: S::V) -> S::V {
        let e = exp(s, s.mul(gate, s.splat(-1.0)));
        s.mul(s.div(gate, s.add(e, s.splat(1.0))), up)
    }
}
